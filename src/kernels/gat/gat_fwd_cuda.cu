// Attention over edges on a GPU, in one pass over the edges: the maximum and the sum of a row are found online, chunk
// by chunk, and what was summed so far shrinks with the maximum. Bound by memory, per edge: its column and the scores
// of its source once per head, and between nothing (x in L2) and D numbers of x; per row D numbers of y and 8 H bytes
// saved. A warp has a row and head; a block has a long row and a head, its warps take chunks in turn and are merged in
// their order.
#include "core/device/cuda_check.cuh"
#include "core/device/gpu_runtime.h"
#include "kernels/gat/gat_cuda.cuh"
#include "kernels/gat/gat_rows.h"

namespace braid {
namespace {

template <class X>
struct Args {
  const int64_t* rowptr;
  const int32_t* col;
  int64_t rows;
  const X* x;
  int x_stride;
  const float *left, *right;
  RowsOut y;
  float *top, *sum;
  float slope;
  bool loops;
  int heads, group;
  int64_t part;
};

// Of the chunks of one warp; acc is spread over its groups.
template <int kVec, int kTiles>
struct Attended {
  float top = -INFINITY, sum = 0;
  float acc[1][kTiles][kVec] = {};
};

template <int kVec, int kTiles, class X>
__device__ void attend(const Args<X>& a, int64_t row, int head, const GatStrip<kVec, kTiles>& strip, int64_t from,
                       int64_t step, Attended<kVec, kTiles>& got) {
  const int64_t begin = a.rowptr[row], edges = a.rowptr[row + 1] - begin;
  const float left = a.left[row * a.heads + head];
  const X* x = a.x + head * a.part + strip.first;
  gat_chunks(a.col, begin, edges, row, a.loops, from, step, [&](int source, int count) {
    const bool there = lane_of_thread() < count;
    const float score = there ? gat_leaky_relu(left + a.right[int64_t{source} * a.heads + head], a.slope) : -INFINITY;
    const float top = fmaxf(got.top, warp_max(score));
    if (top > got.top) {
      const float shrink = got.top == -INFINITY ? 0.0f : expf(got.top - top);
      got.sum *= shrink;
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
#pragma unroll
        for (int n = 0; n < kVec; ++n) got.acc[0][t][n] *= shrink;
      }
      got.top = top;
    }
    const float weight = there ? expf(score - top) : 0.0f;
    got.sum += group_sum(weight);
    gat_gather<kVec, kTiles, 1>(x, a.x_stride, strip, count, source, weight, 1.0f, got.acc);
  });
  gat_sum_groups<kVec, kTiles>(got.acc[0], strip.group);
}

// top and sum of a row, by one thread.
template <class X>
__device__ void save(const Args<X>& a, int64_t row, int head, float top, float sum) {
  a.top[row * a.heads + head] = top == -INFINITY ? 0.0f : top;
  a.sum[row * a.heads + head] = sum;
}

template <int kVec, int kTiles, class X>
__device__ void attend_short(const Args<X>& a, int64_t row, int head) {
  using Strip = GatStrip<kVec, kTiles>;
  for (int64_t first = 0; first < a.part; first += Strip::kMost) {
    const Strip strip(first, a.part, a.group);
    Attended<kVec, kTiles> got;
    attend(a, row, head, strip, 0, kWarpLanes, got);
    const bool empty = a.rowptr[row] == a.rowptr[row + 1] && !a.loops;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const int c = strip.channel(t);
#pragma unroll
      for (int n = 0; n < kVec; ++n) got.acc[0][t][n] = empty ? 0.0f : got.acc[0][t][n] / got.sum;
      if (strip.writes() && c < strip.width) a.y.template put<kVec>(row, head * a.part + first + c, got.acc[0][t]);
    }
    if (first == 0 && lane_of_thread() == 0) save(a, row, head, got.top, got.sum);
  }
}

template <int kMost>
struct Merged {
  float acc[kGatWarps][kMost], top[kGatWarps], sum[kGatWarps];
};

template <int kVec, int kTiles, class X>
__device__ void attend_long(const Args<X>& a, int64_t row, int head, Merged<GatStrip<kVec, kTiles>::kMost>& all) {
  using Strip = GatStrip<kVec, kTiles>;
  const int warp = warp_of_thread();
  for (int64_t first = 0; first < a.part; first += Strip::kMost) {
    const Strip strip(first, a.part, a.group);
    Attended<kVec, kTiles> got;
    attend(a, row, head, strip, warp * kWarpLanes, kGatThreads, got);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      if (strip.writes() && strip.channel(t) < strip.width)
        write<kVec>(all.acc[warp] + strip.channel(t), got.acc[0][t]);
    }
    if (lane_of_thread() == 0) all.top[warp] = got.top, all.sum[warp] = got.sum;
    __syncthreads();
    float top = all.top[0], sum = 0, scale[kGatWarps];
#pragma unroll
    for (int w = 1; w < kGatWarps; ++w) top = fmaxf(top, all.top[w]);
#pragma unroll
    for (int w = 0; w < kGatWarps; ++w) {
      scale[w] = expf(all.top[w] - top);
      sum += all.sum[w] * scale[w];
    }
    for (int c = static_cast<int>(threadIdx.x); c < strip.width; c += kGatThreads) {
      float y[1] = {0};
#pragma unroll
      for (int w = 0; w < kGatWarps; ++w) y[0] += all.acc[w][c] * scale[w];
      y[0] /= sum;
      a.y.template put<1>(row, head * a.part + first + c, y);
    }
    if (first == 0 && threadIdx.x == 0) save(a, row, head, top, sum);
    __syncthreads();
  }
}

template <int kVec, int kTiles, class X>
__global__ void __launch_bounds__(kGatThreads, gat_blocks(kVec, kTiles)) gat_fwd_kernel(Args<X> a, LongRowList longs) {
  __shared__ __align__(16) Merged<GatStrip<kVec, kTiles>::kMost> all;
  if (longs.shared(a.heads, [&](int64_t row, int head) { attend_long<kVec, kTiles>(a, row, head, all); })) return;
  const int64_t task = longs.warp(kGatWarps), row = quotient(task, a.heads);
  if (row >= a.rows || longs.has(a.rowptr[row + 1] - a.rowptr[row])) return;
  attend_short<kVec, kTiles>(a, row, static_cast<int>(task - row * a.heads));
}

template <class X>
void launch(Ctx& ctx, const GatFwd& op) {
  constexpr int kVec = 16 / static_cast<int>(sizeof(X)), kTiles = kVec == 8 ? 2 : 4;
  const int64_t heads = op.left.dim(1), part = op.y.dim(1) / heads;
  const bool vectors = part % kVec == 0 && vectors_fit(kVec, {op.x, op.y});
  const Args<X> a{.rowptr = op.rowptr.as<int64_t>(),
                  .col = op.col.as<int32_t>(),
                  .rows = op.y.dim(0),
                  .x = reinterpret_cast<const X*>(op.x.data),
                  .x_stride = static_cast<int>(op.x.stride(0)),
                  .left = op.left.as<float>(),
                  .right = op.right.as<float>(),
                  .y = RowsOut(op.y),
                  .top = op.top.as<float>(),
                  .sum = op.sum.as<float>(),
                  .slope = op.slope,
                  .loops = op.loops,
                  .heads = static_cast<int>(heads),
                  .group = gat_group(part, vectors ? kVec : 1),
                  .part = part};
  const LongRows longs(*ctx.gpu, op.rowptr, op.col.dim(0), kGatLongRow, a.heads);
  auto* stream = static_cast<cudaStream_t>(ctx.gpu->stream());
  const auto go = [&](auto* kernel) {
    kernel<<<longs.blocks(a.rows * heads, kGatWarps), kGatThreads, 0, stream>>>(a, longs.list());
  };
  if (vectors) {
    part > kVec* kWarpLanes ? go(&gat_fwd_kernel<kVec, kTiles, X>) : go(&gat_fwd_kernel<kVec, 1, X>);
  } else {
    part > kWarpLanes ? go(&gat_fwd_kernel<1, 4, X>) : go(&gat_fwd_kernel<1, 1, X>);
  }
  cuda_check(cudaGetLastError(), "gat_fwd cannot be launched");
}

}  // namespace

void gat_fwd_cuda(Ctx& ctx, const GatFwd& op, std::span<std::byte>) {
  check_gat(op);
  if (op.y.count() == 0) return;
  op.x.dtype == DType::bf16 ? launch<__nv_bfloat16>(ctx, op) : launch<float>(ctx, op);
}

}  // namespace braid
