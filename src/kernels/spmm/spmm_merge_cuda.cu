// Equal shares of rows and edges together for every group of lanes, whatever the rows (merge path: Merrill and Garland,
// SC 2016). A row that shares cut is summed from its parts in order by a second kernel, so that results do not depend
// on which group is faster. Plain sums only.
#include "kernels/spmm/spmm_gpu.cuh"

namespace braid {
namespace {
using namespace gpu;

struct Cut {
  int64_t row, edge;
};

// Where share `t` of the rows and edges begins: the largest row whose end lies before, and an edge of it.
__device__ Cut cut_at(const SpmmCall& a, int64_t t) {
  int64_t low = 0, high = min(a.rows, t) + 1;  // rowptr[row] + row <= t for `low`, not for `high`
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (__ldg(a.rowptr + middle) + middle <= t ? low : high) = middle;
  }
  return {low, t - low};
}

// Parts of cut rows: [groups][2][width], of the row that began in an earlier share and of the one that goes on after.
template <int V>
__device__ void keep(const SpmmCall& a, float* parts, int64_t slot, int64_t c, const Values<V>& sum) {
  for (int k = 0; k < V; ++k) parts[slot * a.width + c + k] = sum.v[k];
}

template <class X, int V>
__device__ Values<V> sum_edges(const SpmmCall& a, int64_t begin, int64_t end, int64_t c) {
  Values<V> sum{};
#pragma unroll 4
  for (int64_t e = begin; e < end; ++e) {
    const int32_t j = __ldg(a.col + e);
    const float f = factor_of(a, e, j);
    const Values<V> x = read<V>(reinterpret_cast<const X*>(a.x) + j * a.x_stride + c);
    for (int k = 0; k < V; ++k) sum.v[k] = fmaf(f, x.v[k], sum.v[k]);
  }
  return sum;
}

template <class X, int V>
__global__ void __launch_bounds__(kThreads) sum_shares(const SpmmCall a, int log, int64_t share, float* parts) {
  const Group g = group_of(log);
  const int64_t c = ((static_cast<int64_t>(blockIdx.y) << log) + g.lane) * V, total = a.rows + a.edges;
  if (g.number * share >= total || c >= a.width) return;
  const Cut begin = cut_at(a, g.number * share), end = cut_at(a, min(total, (g.number + 1) * share));
  bool cut = begin.edge > __ldg(a.rowptr + begin.row);
  int64_t e = begin.edge;
  for (int64_t row = begin.row; row < end.row; ++row) {
    const int64_t first = __ldg(a.rowptr + row), last = __ldg(a.rowptr + row + 1);
    const Values<V> sum = sum_edges<X, V>(a, e, last, c);
    cut ? keep(a, parts, 2 * g.number, c, sum) : finish<X, V>(a, row, last - first, c, sum);
    cut = false;
    e = last;
  }
  if (e < end.edge) keep(a, parts, 2 * g.number + (cut ? 0 : 1), c, sum_edges<X, V>(a, e, end.edge, c));
}

template <class X, int V>
__global__ void __launch_bounds__(kThreads) add_parts(const SpmmCall a, int log, int64_t share, const float* parts) {
  const Group g = group_of(log);
  const int64_t c = ((static_cast<int64_t>(blockIdx.y) << log) + g.lane) * V, total = a.rows + a.edges;
  if ((g.number + 1) * share >= total || c >= a.width) return;
  const Cut begin = cut_at(a, g.number * share), end = cut_at(a, (g.number + 1) * share);
  const int64_t first = __ldg(a.rowptr + end.row);
  const bool begins_here = end.edge > first && (end.row > begin.row || begin.edge == first);
  if (!begins_here) return;
  const int64_t last = __ldg(a.rowptr + end.row + 1);
  Values<V> sum;
  for (int k = 0; k < V; ++k) sum.v[k] = parts[(2 * g.number + 1) * a.width + c + k];
  for (int64_t next = g.number + 1; next <= (end.row + last) / share; ++next) {
    for (int k = 0; k < V; ++k) sum.v[k] += parts[2 * next * a.width + c + k];
  }
  finish<X, V>(a, end.row, last - first, c, sum);
}

}  // namespace

void spmm_fwd_cuda_merge(Ctx& ctx, const SpmmFwd& op, std::span<std::byte>) {
  check_spmm(op);
  if (op.y.count() == 0) return;
  const SpmmCall a = call_of(op);
  const int64_t total = a.rows + a.edges, share = std::clamp<int64_t>(total >> 14, 64, 1024),
                groups = (total + share - 1) / share;
  const auto stream = static_cast<cudaStream_t>(ctx.gpu->stream());
  DevicePool& memory = ctx.gpu->memory();
  std::byte* const scratch = memory.take(8 * groups * a.width);
  with_types(op, [&](auto x, auto vector) {
    using X = decltype(x);
    constexpr int V = decltype(vector)::value;
    const int64_t vectors = (a.width + V - 1) / V;
    const int log = lanes_log(vectors);
    const dim3 blocks(blocks_of(groups << log), static_cast<unsigned>(((vectors - 1) >> log) + 1));
    auto* const parts = reinterpret_cast<float*>(scratch);
    sum_shares<X, V><<<blocks, kThreads, 0, stream>>>(a, log, share, parts);
    add_parts<X, V><<<blocks, kThreads, 0, stream>>>(a, log, share, parts);
  });
  memory.give_back(scratch);
  cuda_check(cudaGetLastError(), "spmm cannot be launched");
}

}  // namespace braid
