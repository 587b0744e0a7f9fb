// Gradients of attention over edges on a GPU, without atomics and with O(R H) of scratch. Two gathers: over the rows,
// of x, for dleft; over the transpose, of dy, for dx and dright. No dot per edge is needed, since it is linear:
//   dleft_i  = sum_j p_ij s_ij (<dy_i, x_j> - m_i) = <dy_i, sum_j p_ij s_ij x_j> - m_i sum_j p_ij s_ij
//   dright_j = <x_j, sum_i p_ij s_ij dy_i> - sum_i p_ij s_ij m_i,     m_i = <dy_i, y_i>, s leaky_relu'
// Bound by memory: each gather reads between nothing (all in L2) and D numbers per edge, and the first leaves 16 bytes
// per row and head that the second reads per edge and head: left, top, sum and m. Rows, heads and long rows as in
// gat_fwd_cuda.cu.
#include "core/device/cuda_check.cuh"
#include "core/device/gpu_runtime.h"
#include "kernels/gat/gat_cuda.cuh"
#include "kernels/gat/gat_rows.h"

namespace braid {
namespace {

struct Common {
  const int64_t* rowptr;  // of the transpose in the pass over sources
  const int32_t* col;
  int64_t nodes, loops;  // the first `loops` nodes have one
  const float* right;
  float4* stats;  // [R, H]: left, top, sum, m
  float slope;
  int heads, group;
  int64_t part;
};
template <class X>
struct LeftArgs : Common {
  const X* x;
  int x_stride;
  const float *left, *top, *sum;
  RowsIn y, dy;
  float* dleft;
};
struct SourceArgs : Common {
  const float* dy;
  int dy_stride;
  RowsIn x;
  float *dx, *dright;
};

// <a, b> of a strip over the lanes of a group, both in the layout of the gather. Every lane of a warp gets it.
template <int kVec, int kTiles>
__device__ float dot(const GatStrip<kVec, kTiles>& strip, const RowsIn& rows, int64_t row, int64_t first,
                     const float (&b)[kTiles][kVec]) {
  float sum = 0;
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    const int c = strip.channel(t);
    if (c >= strip.width) continue;
    float a[kVec];
    rows.get<kVec>(row, first + c, a);
#pragma unroll
    for (int n = 0; n < kVec; ++n) sum = fmaf(a[n], b[t][n], sum);
  }
  return group_sum(sum, strip.group);
}

// What a warp has of dleft of a row: dleft = dots - m slopes.
struct LeftSum {
  float dots = 0, slopes = 0, m = 0;
};

template <int kVec, int kTiles, class X>
__device__ LeftSum left_sum(const LeftArgs<X>& a, int64_t row, int head, int64_t from, int64_t step) {
  using Strip = GatStrip<kVec, kTiles>;
  const int64_t begin = a.rowptr[row], edges = a.rowptr[row + 1] - begin, own = row * a.heads + head;
  const float left = a.left[own], top = a.top[own], sum = a.sum[own];
  LeftSum total;
  for (int64_t first = 0; first < a.part; first += Strip::kMost) {
    const Strip strip(first, a.part, a.group);
    const int64_t channel = head * a.part + first;
    float acc[1][kTiles][kVec] = {}, y[kTiles][kVec] = {};
    gat_chunks(a.col, begin, edges, row, row < a.loops, from, step, [&](int source, int count) {
      float weight = 0;
      if (lane_of_thread() < count) {
        const float s = left + a.right[int64_t{source} * a.heads + head];
        weight = expf(gat_leaky_relu(s, a.slope) - top) / sum * (s > 0 ? 1.0f : a.slope);
      }
      if (first == 0) total.slopes += group_sum(weight);
      gat_gather<kVec, kTiles, 1>(a.x + channel, a.x_stride, strip, count, source, weight, 1.0f, acc);
    });
    gat_sum_groups<kVec, kTiles>(acc[0], strip.group);
    total.dots += dot(strip, a.dy, row, channel, acc[0]);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      if (strip.channel(t) < strip.width) a.y.template get<kVec>(row, channel + strip.channel(t), y[t]);
    }
    total.m += dot(strip, a.dy, row, channel, y);
  }
  return total;
}

// By one thread.
template <class X>
__device__ void put_left(const LeftArgs<X>& a, int64_t row, int head, const LeftSum& s) {
  const int64_t own = row * a.heads + head;
  a.dleft[own] = s.dots - s.m * s.slopes;
  a.stats[own] = make_float4(a.left[own], a.top[own], a.sum[own], s.m);
}

template <int kVec, int kTiles, class X>
__global__ void __launch_bounds__(kGatThreads, gat_blocks(kVec, kTiles))
    gat_left_kernel(LeftArgs<X> a, LongRowList longs) {
  __shared__ float dots[kGatWarps], slopes[kGatWarps];
  const int warp = warp_of_thread();
  const bool shared = longs.shared(a.heads, [&](int64_t row, int head) {
    LeftSum s = left_sum<kVec, kTiles>(a, row, head, warp * kWarpLanes, kGatThreads);
    if (lane_of_thread() == 0) dots[warp] = s.dots, slopes[warp] = s.slopes;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int w = 1; w < kGatWarps; ++w) s.dots += dots[w], s.slopes += slopes[w];
      put_left(a, row, head, s);
    }
    __syncthreads();
  });
  const int64_t task = shared ? a.nodes * a.heads : longs.warp(kGatWarps), row = quotient(task, a.heads);
  if (row >= a.nodes || longs.has(a.rowptr[row + 1] - a.rowptr[row])) return;
  const int head = static_cast<int>(task - row * a.heads);
  const LeftSum s = left_sum<kVec, kTiles>(a, row, head, 0, kWarpLanes);
  if (lane_of_thread() == 0) put_left(a, row, head, s);
}

// A strip of dx of a source and its part of dright: the first set of weights is p, the second p s.
template <int kVec, int kTiles>
__device__ float source_sum(const SourceArgs& a, int64_t node, int head, const GatStrip<kVec, kTiles>& strip,
                            int64_t from, int64_t step, float (&acc)[2][kTiles][kVec]) {
  const int64_t begin = a.rowptr[node], edges = a.rowptr[node + 1] - begin, channel = head * a.part + strip.first;
  const float right = a.right[node * a.heads + head];
  float means = 0;
  gat_chunks(a.col, begin, edges, node, node < a.loops, from, step, [&](int row, int count) {
    float weight = 0, mean = 0;
    if (lane_of_thread() < count) {
      const float4 stats = __ldg(a.stats + int64_t{row} * a.heads + head);
      const float s = stats.x + right;
      weight = expf(gat_leaky_relu(s, a.slope) - stats.y) / stats.z;
      mean = weight * (s > 0 ? 1.0f : a.slope) * stats.w;
      if (!(s > 0)) weight = -weight;
    }
    if (strip.first == 0) means += group_sum(mean);
    gat_gather<kVec, kTiles, 2>(a.dy + channel, a.dy_stride, strip, count, row, weight, a.slope, acc);
  });
#pragma unroll
  for (int s = 0; s < 2; ++s) gat_sum_groups<kVec, kTiles>(acc[s], strip.group);
  // Without edges 0 even where x is not finite.
  return edges > 0 || node < a.loops ? dot(strip, a.x, node, channel, acc[1]) - means : 0.0f;
}

template <int kVec, int kTiles>
__device__ void source_short(const SourceArgs& a, int64_t node, int head) {
  using Strip = GatStrip<kVec, kTiles>;
  float dright = 0;
  for (int64_t first = 0; first < a.part; first += Strip::kMost) {
    const Strip strip(first, a.part, a.group);
    float acc[2][kTiles][kVec] = {};
    dright += source_sum<kVec, kTiles>(a, node, head, strip, 0, kWarpLanes, acc);
    float* dx = a.dx + (node * a.heads + head) * a.part + first;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      if (strip.writes() && strip.channel(t) < strip.width) write<kVec>(dx + strip.channel(t), acc[0][t]);
    }
  }
  if (lane_of_thread() == 0) a.dright[node * a.heads + head] = dright;
}

template <int kMost>
struct Merged {
  float acc[kGatWarps][kMost], dright[kGatWarps];
};

template <int kVec, int kTiles>
__device__ void source_long(const SourceArgs& a, int64_t node, int head, Merged<GatStrip<kVec, kTiles>::kMost>& all) {
  using Strip = GatStrip<kVec, kTiles>;
  const int warp = warp_of_thread();
  float dright = 0;
  for (int64_t first = 0; first < a.part; first += Strip::kMost) {
    const Strip strip(first, a.part, a.group);
    float acc[2][kTiles][kVec] = {};
    dright += source_sum<kVec, kTiles>(a, node, head, strip, warp * kWarpLanes, kGatThreads, acc);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      if (strip.writes() && strip.channel(t) < strip.width) write<kVec>(all.acc[warp] + strip.channel(t), acc[0][t]);
    }
    if (lane_of_thread() == 0) all.dright[warp] = dright;
    __syncthreads();
    for (int c = static_cast<int>(threadIdx.x); c < strip.width; c += kGatThreads) {
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kGatWarps; ++w) sum += all.acc[w][c];
      a.dx[(node * a.heads + head) * a.part + first + c] = sum;
    }
    if (threadIdx.x == 0) {
      float sum = 0;
      for (int w = 0; w < kGatWarps; ++w) sum += all.dright[w];
      a.dright[node * a.heads + head] = sum;  // the last strip's stays
    }
    __syncthreads();
  }
}

template <int kVec, int kTiles>
__global__ void __launch_bounds__(kGatThreads, gat_blocks(kVec, kTiles))
    gat_source_kernel(SourceArgs a, LongRowList longs) {
  __shared__ __align__(16) Merged<GatStrip<kVec, kTiles>::kMost> all;
  if (longs.shared(a.heads, [&](int64_t node, int head) { source_long<kVec, kTiles>(a, node, head, all); })) return;
  const int64_t task = longs.warp(kGatWarps), node = quotient(task, a.heads);
  if (node >= a.nodes || longs.has(a.rowptr[node + 1] - a.rowptr[node])) return;
  source_short<kVec, kTiles>(a, node, static_cast<int>(task - node * a.heads));
}

Common common(const GatBwd& op, float4* stats) {
  const int64_t heads = op.left.dim(1);
  return {.rowptr = op.rowptr.as<int64_t>(),
          .col = op.col.as<int32_t>(),
          .nodes = op.y.dim(0),
          .loops = op.loops ? op.y.dim(0) : 0,
          .right = op.right.as<float>(),
          .stats = stats,
          .slope = op.slope,
          .heads = static_cast<int>(heads),
          .group = 1,
          .part = op.y.dim(1) / heads};
}

template <class X>
void left_pass(Ctx& ctx, const GatBwd& op, Common shared) {
  constexpr int kVec = 16 / static_cast<int>(sizeof(X)), kTiles = kVec == 8 ? 2 : 4;
  const bool vectors = shared.part % kVec == 0 && vectors_fit(kVec, {op.x, op.y, op.dy});
  shared.group = gat_group(shared.part, vectors ? kVec : 1);
  const LeftArgs<X> a{shared,
                      reinterpret_cast<const X*>(op.x.data),
                      static_cast<int>(op.x.stride(0)),
                      op.left.as<float>(),
                      op.top.as<float>(),
                      op.sum.as<float>(),
                      RowsIn(op.y),
                      RowsIn(op.dy),
                      op.dleft.as<float>()};
  const LongRows longs(*ctx.gpu, op.rowptr, op.col.dim(0), kGatLongRow, a.heads);
  const auto go = [&](auto* kernel) {
    kernel<<<longs.blocks(a.nodes * a.heads, kGatWarps), kGatThreads, 0,
             static_cast<cudaStream_t>(ctx.gpu->stream())>>>(a, longs.list());
  };
  if (vectors) {
    a.part > kVec* kWarpLanes ? go(&gat_left_kernel<kVec, kTiles, X>) : go(&gat_left_kernel<kVec, 1, X>);
  } else {
    a.part > kWarpLanes ? go(&gat_left_kernel<1, 4, X>) : go(&gat_left_kernel<1, 1, X>);
  }
  cuda_check(cudaGetLastError(), "gat_bwd cannot be launched over rows");
}

void source_pass(Ctx& ctx, const GatBwd& op, Common shared) {
  constexpr int kVec = 4;
  const bool vectors = shared.part % kVec == 0 && vectors_fit(kVec, {op.x, op.dy, op.dx});
  shared.rowptr = op.out_rowptr.as<int64_t>();
  shared.col = op.out_col.as<int32_t>();
  shared.nodes = op.x.dim(0);
  shared.group = gat_group(shared.part, vectors ? kVec : 1);
  const SourceArgs a{shared,       op.dy.as<float>(), static_cast<int>(op.dy.stride(0)),
                     RowsIn(op.x), op.dx.as<float>(), op.dright.as<float>()};
  const LongRows longs(*ctx.gpu, op.out_rowptr, op.out_col.dim(0), kGatLongRow, a.heads);
  const auto go = [&](auto* kernel) {
    kernel<<<longs.blocks(a.nodes * a.heads, kGatWarps), kGatThreads, 0,
             static_cast<cudaStream_t>(ctx.gpu->stream())>>>(a, longs.list());
  };
  if (vectors) {
    a.part > kVec* kWarpLanes ? go(&gat_source_kernel<kVec, 4>) : go(&gat_source_kernel<kVec, 1>);
  } else {
    a.part > kWarpLanes ? go(&gat_source_kernel<1, 4>) : go(&gat_source_kernel<1, 1>);
  }
  cuda_check(cudaGetLastError(), "gat_bwd cannot be launched over sources");
}

}  // namespace

void gat_bwd_cuda(Ctx& ctx, const GatBwd& op, std::span<std::byte>) {
  check_gat(op);
  if (op.x.count() == 0) {  // no sources, hence no edges
    if (op.dleft.count() > 0)
      cuda_check(cudaMemsetAsync(op.dleft.data, 0, static_cast<size_t>(op.dleft.bytes()),
                                 static_cast<cudaStream_t>(ctx.gpu->stream())),
                 "gat_bwd cannot clear");
    return;
  }
  const PoolBlock scratch(ctx.gpu->memory(), op.left.count() * static_cast<int64_t>(sizeof(float4)));
  const Common shared = common(op, reinterpret_cast<float4*>(scratch.data()));
  if (op.y.count() > 0)
    op.x.dtype == DType::bf16 ? left_pass<__nv_bfloat16>(ctx, op, shared) : left_pass<float>(ctx, op, shared);
  source_pass(ctx, op, shared);
}

}  // namespace braid
