// Equal shares of rows and edges together for every group of lanes, whatever the rows (merge path: Merrill and Garland,
// SC 2016). A row that shares cut is summed from its parts in order by a second kernel, so that results do not depend
// on which group is faster. Plain sums only.
#include "kernels/spmm/spmm_gpu_run.cuh"

namespace braid {
namespace {
using namespace gpu;

struct Cut {
  int64_t row, edge;
};

// Where share `t` of the rows and edges begins: the largest row whose end lies before, and an edge of it.
__device__ Cut cut_at(const SpmmCall& a, const Group& g, int64_t t) {
  const int64_t row = last_that(g, 0, min(a.rows, t) + 1, [&](int64_t r) { return __ldg(a.rowptr + r) + r <= t; });
  return {row, t - row};
}

// Parts of cut rows: [groups][2][width], of the row that began in an earlier share and of the one that goes on after.
template <int V, int CF>
__device__ void keep(const SpmmCall& a, float* parts, int64_t slot, const Lane<V, CF>& lane) {
  for (int t = 0; t < CF; ++t) {
    if (lane.inside[t]) write<V>(parts + slot * a.width + lane.at[t], lane.values(t));
  }
}

template <class X, int V, int CF>
__device__ void put(const SpmmCall& a, int64_t row, int64_t degree, const Lane<V, CF>& lane) {
  for (int t = 0; t < CF; ++t) {
    if (lane.inside[t]) finish<X, V>(a, row, degree, lane.at[t], lane.values(t));
  }
}

template <class X, int V, int CF>
__global__ void __launch_bounds__(kThreads) sum_shares(const SpmmCall a, int log, int64_t share, float* parts) {
  const Group g = group_of(log);
  const int64_t total = a.rows + a.edges;
  if (g.number * share >= total) return;
  const Cut begin = cut_at(a, g, g.number * share), end = cut_at(a, g, min(total, (g.number + 1) * share));
  bool cut = begin.edge > __ldg(a.rowptr + begin.row);
  int64_t e = begin.edge;
  Lane<V, CF> lane(a, g);
  for (int64_t row = begin.row; row < end.row; ++row) {
    const int64_t first = __ldg(a.rowptr + row), last = __ldg(a.rowptr + row + 1);
    add_edges<X>(a, g, e, last, lane);
    cut ? keep(a, parts, 2 * g.number, lane) : put<X>(a, row, last - first, lane);
    lane.clear();
    cut = false;
    e = last;
  }
  if (e == end.edge) return;
  add_edges<X>(a, g, e, end.edge, lane);
  keep(a, parts, 2 * g.number + (cut ? 0 : 1), lane);
}

template <class X, int V, int CF>
__global__ void __launch_bounds__(kThreads) add_parts(const SpmmCall a, int log, int64_t share, const float* parts) {
  const Group g = group_of(log);
  if ((g.number + 1) * share >= a.rows + a.edges) return;
  const Cut begin = cut_at(a, g, g.number * share), end = cut_at(a, g, (g.number + 1) * share);
  const int64_t first = __ldg(a.rowptr + end.row);
  const bool begins_here = end.edge > first && (end.row > begin.row || begin.edge == first);
  if (!begins_here) return;
  const int64_t last = __ldg(a.rowptr + end.row + 1);
  Lane<V, CF> lane(a, g);
  const auto add = [&](int64_t slot) {
    for (int t = 0; t < CF; ++t) {
      if (!lane.inside[t]) continue;
      const Values<V> more = read<V>(parts + slot * a.width + lane.at[t]);
      for (int k = 0; k < V; ++k) lane.sum[t][k] += more.v[k];
    }
  };
  add(2 * g.number + 1);
  for (int64_t next = g.number + 1; next <= (end.row + last) / share; ++next) add(2 * next);
  put<X>(a, end.row, last - first, lane);
}

template <class X, int V, int CF>
void launch(Ctx& ctx, const SpmmCall& a) {
  const int64_t total = a.rows + a.edges, share = std::clamp<int64_t>(total >> 14, 64, 1024),
                groups = (total + share - 1) / share, vectors = (a.width + V - 1) / V;
  const int log = lanes_log(vectors);
  const dim3 blocks(blocks_of(groups << log), static_cast<unsigned>(((vectors - 1) >> log) / CF + 1));
  const auto stream = static_cast<cudaStream_t>(ctx.gpu->stream());
  const PoolBlock scratch(ctx.gpu->memory(), 8 * groups * a.width);
  auto* const parts = reinterpret_cast<float*>(scratch.data());
  sum_shares<X, V, CF><<<blocks, kThreads, 0, stream>>>(a, log, share, parts);
  add_parts<X, V, CF><<<blocks, kThreads, 0, stream>>>(a, log, share, parts);
  cuda_check(cudaGetLastError(), "spmm cannot be launched");
}

}  // namespace

void spmm_fwd_cuda_merge(Ctx& ctx, const SpmmFwd& op, std::span<std::byte>) {
  check_spmm(op);
  if (op.y.count() == 0) return;
  const SpmmCall a = call_of(op);
  with_types(op, [&](auto x, auto vector) {
    using X = decltype(x);
    constexpr int V = decltype(vector)::value;
    a.width > 32 * V ? launch<X, V, 2>(ctx, a) : launch<X, V, 1>(ctx, a);
  });
}

}  // namespace braid
