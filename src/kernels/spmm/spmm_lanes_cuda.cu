// Parallel reductions: lanes along the edges, for few channels (arXiv 2106.16064). `pr` gives a row to as many lanes as
// it has edges on average and adds them up by shuffles. `eb_pr` gives 32 edges at a time to a warp, whatever their
// rows: a segmented sum by shuffles; parts of rows at the ends of a warp's share are added in order by a second kernel,
// in place of atomic additions, so that results repeat.
#include "kernels/spmm/spmm_gpu.cuh"

namespace braid {
namespace {
using namespace gpu;

constexpr int64_t kShare = 256;  // edges of a warp

template <class X, int V>
__device__ Values<V> scaled(const SpmmCall& a, int64_t e, int64_t c) {
  const int32_t j = __ldg(a.col + e);
  const float f = factor_of(a, e, j);
  Values<V> x = read<V>(reinterpret_cast<const X*>(a.x) + j * a.x_stride + c);
  for (int k = 0; k < V; ++k) x.v[k] *= f;
  return x;
}

template <class X, int V>
__global__ void __launch_bounds__(kThreads) sum_rows_in_lanes(const SpmmCall a, int log) {
  const Group g = group_of(log);
  if (g.number >= a.rows) return;
  const int64_t c = static_cast<int64_t>(blockIdx.y) * V, begin = __ldg(a.rowptr + g.number),
                end = __ldg(a.rowptr + g.number + 1);
  Values<V> sum{};
#pragma unroll 4
  for (int64_t e = begin + g.lane; e < end; e += g.lanes) {
    const Values<V> x = scaled<X, V>(a, e, c);
    for (int k = 0; k < V; ++k) sum.v[k] += x.v[k];
  }
  for (int offset = g.lanes / 2; offset > 0; offset /= 2) {
    for (int k = 0; k < V; ++k) sum.v[k] += __shfl_xor_sync(g.mask, sum.v[k], offset, g.lanes);
  }
  if (g.lane == 0) finish<X, V>(a, g.number, end - begin, c, sum);
}

// Of the first and of the last row of every warp's share: [warps][2][width].
template <class X, int V>
__global__ void __launch_bounds__(kThreads) sum_segments(const SpmmCall a, float* parts) {
  const Group g = group_of(5);
  const int64_t begin = g.number * kShare, end = min(begin + kShare, a.edges), c = static_cast<int64_t>(blockIdx.y) * V;
  if (begin >= end) return;
  auto* const y = reinterpret_cast<float*>(a.y);
  const int64_t first = row_of(a.rowptr, 0, a.rows, begin), last = row_of(a.rowptr, first, a.rows, end - 1);
  Values<V> front{}, back{};
  for (int64_t from = begin; from < end; from += 32) {
    const int64_t e = from + g.lane;
    const bool inside = e < end;
    const int64_t row = inside ? row_of(a.rowptr, first, last + 1, e) : a.rows;
    Values<V> sum{};
    if (inside) sum = scaled<X, V>(a, e, c);
    for (int d = 1; d < 32; d *= 2) {
      const int64_t other_row = __shfl_down_sync(~0u, row, d);
      for (int k = 0; k < V; ++k) {
        const float other = __shfl_down_sync(~0u, sum.v[k], d);
        if (g.lane + d < 32 && other_row == row) sum.v[k] += other;
      }
    }
    const bool head = __shfl_up_sync(~0u, row, 1) != row || g.lane == 0;
    if (head && inside) {
      for (int k = 0; k < V; ++k) {
        if (row == first) {
          front.v[k] += sum.v[k];
        } else if (row == last) {
          back.v[k] += sum.v[k];
        } else {
          y[row * a.y_stride + c + k] += sum.v[k];
        }
      }
    }
    __syncwarp();  // the next 32 edges may go on with a row
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    for (int k = 0; k < V; ++k) {
      front.v[k] += __shfl_xor_sync(~0u, front.v[k], offset);
      back.v[k] += __shfl_xor_sync(~0u, back.v[k], offset);
    }
  }
  if (g.lane > 0) return;
  for (int k = 0; k < V; ++k) {
    parts[2 * g.number * a.width + c + k] = front.v[k];
    parts[(2 * g.number + 1) * a.width + c + k] = back.v[k];
  }
}

// One thread per share and channel: the rows that begin in a share and touch one of its ends.
__global__ void __launch_bounds__(kThreads) add_segments(const SpmmCall a, const float* parts) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, number = thread / a.width,
                c = thread % a.width, begin = number * kShare, end = min(begin + kShare, a.edges);
  if (begin >= end) return;
  auto* const y = reinterpret_cast<float*>(a.y);
  const int64_t first = row_of(a.rowptr, 0, a.rows, begin), last = row_of(a.rowptr, first, a.rows, end - 1);
  const auto add_up = [&](int64_t row, int slot) {
    float sum = parts[(2 * number + slot) * a.width + c];
    for (int64_t next = number + 1; next * kShare < __ldg(a.rowptr + row + 1); ++next)
      sum += parts[2 * next * a.width + c];
    y[row * a.y_stride + c] = sum;
  };
  if (__ldg(a.rowptr + first) == begin) add_up(first, 0);
  if (last != first) add_up(last, 1);
}

}  // namespace

void spmm_fwd_cuda_pr(Ctx& ctx, const SpmmFwd& op, std::span<std::byte>) {
  check_spmm(op);
  if (op.y.count() == 0) return;
  const SpmmCall a = call_of(op);
  const int log = lanes_log(std::max<int64_t>(2, (a.edges + a.rows - 1) / a.rows));
  with_types(op, [&](auto x, auto vector) {
    constexpr int V = decltype(vector)::value;
    const dim3 blocks(blocks_of(a.rows << log), static_cast<unsigned>(a.width / V));
    sum_rows_in_lanes<decltype(x), V><<<blocks, kThreads, 0, static_cast<cudaStream_t>(ctx.gpu->stream())>>>(a, log);
  });
  cuda_check(cudaGetLastError(), "spmm cannot be launched");
}

void spmm_fwd_cuda_eb_pr(Ctx& ctx, const SpmmFwd& op, std::span<std::byte>) {
  check_spmm(op);
  if (op.y.count() == 0) return;
  const SpmmCall a = call_of(op);
  const auto stream = static_cast<cudaStream_t>(ctx.gpu->stream());
  cuda_check(cudaMemset2DAsync(a.y, static_cast<size_t>(4 * a.y_stride), 0, static_cast<size_t>(4 * a.width),
                               static_cast<size_t>(a.rows), stream),
             "cannot clear");
  if (a.edges == 0) return;
  const int64_t shares = (a.edges + kShare - 1) / kShare;
  DevicePool& memory = ctx.gpu->memory();
  std::byte* const scratch = memory.take(8 * shares * a.width);
  auto* const parts = reinterpret_cast<float*>(scratch);
  with_types(op, [&](auto x, auto vector) {
    constexpr int V = decltype(vector)::value;
    const dim3 blocks(blocks_of(32 * shares), static_cast<unsigned>(a.width / V));
    sum_segments<decltype(x), V><<<blocks, kThreads, 0, stream>>>(a, parts);
  });
  add_segments<<<blocks_of(shares * a.width), kThreads, 0, stream>>>(a, parts);
  memory.give_back(scratch);
  cuda_check(cudaGetLastError(), "spmm cannot be launched");
}

}  // namespace braid
