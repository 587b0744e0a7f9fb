// Parallel reductions: lanes along the edges, for few channels (arXiv 2106.16064). `pr` gives a row to as many lanes as
// it has edges on average and adds them up by shuffles. `eb_pr` gives 32 edges at a time to a warp, whatever their
// rows: a segmented sum by shuffles; parts of rows at the ends of a warp's share are added in order by a second kernel,
// in place of atomic additions, so that results repeat.
#include "kernels/spmm/spmm_gpu_run.cuh"

namespace braid {
namespace {
using namespace gpu;

constexpr int64_t kShare = 256;  // edges of a warp

// Message of edge e; 0 from `end` on.
template <class X, int V>
__device__ Values<V> scaled(const SpmmCall& a, int64_t e, int64_t end, int64_t c) {
  Values<V> x{};
  if (e >= end) return x;
  const int32_t j = __ldg(a.col + e);
  const float f = factor_of(a, e, j);
  x = read<V>(reinterpret_cast<const X*>(a.x) + j * a.x_stride + c);
  for (int k = 0; k < V; ++k) x.v[k] *= f;
  return x;
}

// In every lane, the sum over a run of edges.
template <class X, int V>
__device__ Values<V> sum_run(const SpmmCall& a, const Group& g, int64_t begin, int64_t end, int64_t c) {
  constexpr int kAtOnce = 4;
  Values<V> sum{};
  for (int64_t e = begin + g.lane; e < end; e += kAtOnce * g.lanes) {
    Values<V> x[kAtOnce];
#pragma unroll
    for (int b = 0; b < kAtOnce; ++b) x[b] = scaled<X, V>(a, e + b * g.lanes, end, c);
#pragma unroll
    for (int b = 0; b < kAtOnce; ++b) {
      for (int k = 0; k < V; ++k) sum.v[k] += x[b].v[k];
    }
  }
  for (int offset = g.lanes / 2; offset > 0; offset /= 2) {
    for (int k = 0; k < V; ++k) sum.v[k] += __shfl_xor_sync(g.mask, sum.v[k], offset, g.lanes);
  }
  return sum;
}

template <class X, int V>
__global__ void __launch_bounds__(kThreads)
    sum_rows_in_lanes(const SpmmCall a, int log, unsigned piece_blocks, CutRows list) {
  const int64_t c = static_cast<int64_t>(blockIdx.y) * V;
  if (blockIdx.x < piece_blocks) {
    const Group g = group_of(5);
    if (g.number >= *list.counts) return;
    const longlong2 task = list.pieces[g.number];
    const int64_t begin = __ldg(a.rowptr + task.x), end = __ldg(a.rowptr + task.x + 1), from = task.y * list.piece;
    const Values<V> sum = sum_run<X, V>(a, g, max(begin, from), min(end, from + list.piece), c);
    if (g.lane == 0) write<V>(list.sums + list.slot(task.y, begin) * a.width + c, sum);
    return;
  }
  const Group g = group_of(log, piece_blocks);
  if (g.number >= a.rows) return;
  const int64_t row = nth_row(a, g.number), begin = __ldg(a.rowptr + row), end = __ldg(a.rowptr + row + 1);
  if (piece_blocks > 0 && end - begin > list.piece) return;
  const Values<V> sum = sum_run<X, V>(a, g, begin, end, c);
  if (g.lane == 0) finish<X, V>(a, row, end - begin, c, sum);
}

template <class X, int V>
__global__ void __launch_bounds__(kThreads) add_pieces_of_rows(const SpmmCall a, CutRows list) {
  const int64_t number = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x,
                c = static_cast<int64_t>(blockIdx.y) * V;
  if (number >= list.counts[1]) return;
  const int64_t row = list.rows[number], begin = __ldg(a.rowptr + row), end = __ldg(a.rowptr + row + 1);
  Values<V> sum{};
  constexpr int kAtOnce = 16;
  list.each<kAtOnce>(begin, end, [&](const int64_t(&slots)[kAtOnce], int n) {
    Values<V> more[kAtOnce];
#pragma unroll
    for (int b = 0; b < kAtOnce; ++b) {
      if (b < n) more[b] = read<V>(list.sums + slots[b] * a.width + c);
    }
#pragma unroll
    for (int b = 0; b < kAtOnce; ++b) {
      for (int k = 0; k < V && b < n; ++k) sum.v[k] += more[b].v[k];
    }
  });
  finish<X, V>(a, row, end - begin, c, sum);
}

// Afterwards the first lane of every run of equal rows has its sum. Lanes without an edge have a row of their own.
template <int V>
__device__ void add_segments_of_warp(const Group& g, int64_t row, Values<V>& sum) {
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const int64_t other_row = __shfl_down_sync(~0u, row, d);
    for (int k = 0; k < V; ++k) {
      const float other = __shfl_down_sync(~0u, sum.v[k], d);
      if (g.lane + d < 32 && other_row == row) sum.v[k] += other;
    }
  }
}

// Of the first and of the last row of every warp's share: [warps][2][width].
template <class X, int V>
__global__ void __launch_bounds__(kThreads) sum_segments(const SpmmCall a, float* parts) {
  const Group g = group_of(5);
  const int64_t begin = g.number * kShare, end = min(begin + kShare, a.edges), c = static_cast<int64_t>(blockIdx.y) * V;
  if (begin >= end) return;
  auto* const y = reinterpret_cast<float*>(a.y);
  const int64_t first = row_of(g, a.rowptr, 0, a.rows, begin), last = row_of(g, a.rowptr, first, a.rows, end - 1);
  Values<V> front{}, back{};
  constexpr int kAtOnce = 4;
  for (int64_t from = begin; from < end; from += 32 * kAtOnce) {
    Values<V> x[kAtOnce];
    int64_t rows[kAtOnce];
#pragma unroll
    for (int b = 0; b < kAtOnce; ++b) x[b] = scaled<X, V>(a, from + 32 * b + g.lane, end, c);
#pragma unroll
    for (int b = 0; b < kAtOnce; ++b)
      rows[b] = from + 32 * b + g.lane < end ? row_of(a.rowptr, first, last + 1, from + 32 * b + g.lane) : a.rows;
#pragma unroll
    for (int b = 0; b < kAtOnce; ++b) {
      add_segments_of_warp(g, rows[b], x[b]);
      const bool head = __shfl_up_sync(~0u, rows[b], 1) != rows[b] || g.lane == 0;
      if (head && rows[b] < a.rows) {
        for (int k = 0; k < V; ++k) {
          if (rows[b] == first) {
            front.v[k] += x[b].v[k];
          } else if (rows[b] == last) {
            back.v[k] += x[b].v[k];
          } else {
            y[rows[b] * a.y_stride + c + k] += x[b].v[k];
          }
        }
      }
      __syncwarp();  // the next 32 edges may go on with a row
    }
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
  const auto stream = static_cast<cudaStream_t>(ctx.gpu->stream());
  const CutRowsInPool cut(*ctx.gpu, op, false);
  const unsigned pieces = cut.none() ? 0 : blocks_of(32 * cut.list.most);
  with_types(op, [&](auto x, auto vector) {
    using X = decltype(x);
    constexpr int V = decltype(vector)::value;
    const auto columns = static_cast<unsigned>(a.width / V);
    sum_rows_in_lanes<X, V>
        <<<dim3(pieces + blocks_of(a.rows << log), columns), kThreads, 0, stream>>>(a, log, pieces, cut.list);
    if (!cut.none())
      add_pieces_of_rows<X, V><<<dim3(blocks_of(cut.list.most / 2), columns), kThreads, 0, stream>>>(a, cut.list);
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
  const PoolBlock scratch(ctx.gpu->memory(), 8 * shares * a.width);
  auto* const parts = reinterpret_cast<float*>(scratch.data());
  with_types(op, [&](auto x, auto vector) {
    constexpr int V = decltype(vector)::value;
    const dim3 blocks(blocks_of(32 * shares), static_cast<unsigned>(a.width / V));
    sum_segments<decltype(x), V><<<blocks, kThreads, 0, stream>>>(a, parts);
  });
  add_segments<<<blocks_of(shares * a.width), kThreads, 0, stream>>>(a, parts);
  cuda_check(cudaGetLastError(), "spmm cannot be launched");
}

}  // namespace braid
