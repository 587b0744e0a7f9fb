// Values of edges on a GPU. Bound by memory: 4 W bytes written per edge, 4 of its column, and the rows of its ends: of
// u once per row as long as a row's edges lie in one warp, of v between once per source (all of v in L2) and D numbers
// per edge. A warp takes 32 edges in order, wherever rows begin: a hub is cut like all else, and an edge's value
// depends on no other edge. Its first and last row are found by a search of 32 probes a round, the row of each edge
// between them.
#include "core/device/cuda_check.cuh"
#include "core/device/gpu_runtime.h"
#include "core/device/warp.cuh"
#include "kernels/sddmm/sddmm_rows.h"

namespace braid {
namespace {

constexpr int kWarps = 8;

template <class X>
struct Args {
  const int64_t* rowptr;
  const int32_t* col;
  int64_t rows, edges;
  const X *u, *v;  // v may be null, as u
  int64_t u_stride, v_stride;
  const float *u_scale, *edge;  // may be null
  float* y;
  float scale;
  PairOp op;
  int width, values;
  int group;  // lanes that share a dot, a power of two
};

// The last row in [low, high] that begins at or before edge e; row `low` does.
__device__ int64_t row_of(const int64_t* rowptr, int64_t low, int64_t high, int64_t e) {
  while (low < high) {
    const int64_t mid = low + (high - low + 1) / 2;
    if (rowptr[mid] <= e) {
      low = mid;
    } else {
      high = mid - 1;
    }
  }
  return low;
}
// The same by a whole warp.
__device__ int64_t row_of_warp(const int64_t* rowptr, int64_t low, int64_t high, int64_t e) {
  while (low < high) {
    const int64_t step = (high - low + kWarpLanes - 1) / kWarpLanes, probe = low + (lane_of_thread() + 1) * step;
    const int64_t before = __popc(__ballot_sync(kAllLanes, probe <= high && rowptr[probe] <= e));
    low += before * step;
    high = min(high, low + step - 1);
  }
  return low;
}

// Pairs of an edge and a value, 32 at a time: groups of lanes take them in turn, a few at once so that their reads
// overlap, and each lane keeps the result it stores.
template <int kVec, class X>
__device__ void dots(const Args<X>& a, int64_t first, int count, int64_t row, int source) {
  constexpr int kBatch = 4;
  const int lane = lane_of_thread(), part = a.width / a.values, groups = kWarpLanes / a.group;
  for (int block = 0; block < a.values; ++block) {
    float mine = 0;
    for (int from = 0; from < a.group; from += kBatch) {
      const X *u[kBatch], *v[kBatch];
      float sums[kBatch] = {};
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int step = min(from + b, a.group - 1), pair = block * kWarpLanes + step * groups + lane / a.group;
        const int e = pair / a.values, channel = pair % a.values * part;
        const int64_t i = __shfl_sync(kAllLanes, row, e), j = __shfl_sync(kAllLanes, source, e);
        u[b] = e < count && from + b < a.group ? a.u + i * a.u_stride + channel : nullptr;
        v[b] = a.v ? a.v + j * a.v_stride + channel : nullptr;
      }
      for (int c = lane % a.group * kVec; c < part; c += a.group * kVec) {
#pragma unroll
        for (int b = 0; b < kBatch; ++b) {
          if (!u[b]) continue;
          float left[kVec], right[kVec];
          read<kVec>(u[b] + c, left);
          if (a.v) read<kVec>(v[b] + c, right);
#pragma unroll
          for (int n = 0; n < kVec; ++n) sums[b] = a.v ? fmaf(left[n], right[n], sums[b]) : sums[b] + left[n];
        }
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const float sum = __shfl_sync(kAllLanes, group_sum(sums[b], a.group), lane % groups * a.group);
        if (lane / groups == from + b) mine = sum;
      }
    }
    const int pair = block * kWarpLanes + lane, e = pair / a.values;
    const int64_t i = __shfl_sync(kAllLanes, row, e), at = first * a.values + pair;
    if (e >= count) continue;
    mine *= a.scale * (a.u_scale ? a.u_scale[i] : 1.0f);
    if (a.op == PairOp::square) mine /= a.edge[at] * a.edge[at];
    a.y[at] = mine;
  }
}

__device__ float pair(PairOp op, float u, float v) {
  switch (op) {
    case PairOp::add:
      return u + v;
    case PairOp::sub:
      return u - v;
    case PairOp::mul:
      return u * v;
    case PairOp::div:
      return u / v;
    case PairOp::copy_u:
      return u;
    default:
      return v;
  }
}

// Channel by channel: the values of 32 edges lie beside each other.
template <int kVec, class X>
__device__ void pairs(const Args<X>& a, int64_t first, int count, int64_t row, int source) {
  const int units = a.width / kVec;
#pragma unroll 4
  for (int block = 0; block < units; ++block) {
    const int unit = block * kWarpLanes + lane_of_thread(), e = unit / units, c = unit % units * kVec;
    const int64_t i = __shfl_sync(kAllLanes, row, e), j = __shfl_sync(kAllLanes, source, e);
    if (e >= count) continue;
    float u[kVec] = {}, v[kVec] = {};
    if (a.u) read<kVec>(a.u + i * a.u_stride + c, u);
    if (a.v) read<kVec>(a.v + j * a.v_stride + c, v);
#pragma unroll
    for (int n = 0; n < kVec; ++n) u[n] = pair(a.op, u[n], v[n]);
    write<kVec>(a.y + (first + e) * a.width + c, u);
  }
}

template <int kVec, class X>
__global__ void __launch_bounds__(kWarps* kWarpLanes) sddmm_kernel(Args<X> a) {
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kWarps + warp_of_thread()) * kWarpLanes;
  if (first >= a.edges) return;
  const int count = static_cast<int>(min(static_cast<int64_t>(kWarpLanes), a.edges - first));
  const int64_t last = first + count - 1, own = min(first + lane_of_thread(), last), end = a.rows - 1;
  const int64_t from = row_of_warp(a.rowptr, 0, end, first), near = min(end, from + kWarpLanes);
  const int64_t to = row_of_warp(a.rowptr, from, a.rowptr[near] > last ? near : end, last);
  const int64_t row = row_of(a.rowptr, from, to, own);
  const int source = a.col[own];
  if (a.op == PairOp::dot || a.op == PairOp::square) {
    dots<kVec>(a, first, count, row, source);
  } else {
    pairs<kVec>(a, first, count, row, source);
  }
}

template <class X>
void launch(Ctx& ctx, const SddmmFwd& op) {
  constexpr int kVec = 16 / static_cast<int>(sizeof(X));
  const View& any = op.u ? op.u : op.v;
  Args<X> a{.rowptr = op.rowptr.as<int64_t>(),
            .col = op.col.as<int32_t>(),
            .rows = op.rowptr.dim(0) - 1,
            .edges = op.col.dim(0),
            .u = reinterpret_cast<const X*>(op.u.data),
            .v = reinterpret_cast<const X*>(op.v.data),
            .u_stride = op.u.stride(0),
            .v_stride = op.v.stride(0),
            .u_scale = op.u_scale ? op.u_scale.as<float>() : nullptr,
            .edge = op.edge ? op.edge.as<float>() : nullptr,
            .y = op.y.as<float>(),
            .scale = op.scale,
            .op = op.op,
            .width = static_cast<int>(any.dim(1)),
            .values = static_cast<int>(op.y.dim(1))};
  const bool sums = op.op == PairOp::dot || op.op == PairOp::square;
  const int part = sums ? a.width / a.values : a.width;
  const bool vectors = part % kVec == 0 && vectors_fit(kVec, {op.u ? op.u : op.v, op.v ? op.v : op.u}) &&
                       reinterpret_cast<uintptr_t>(op.y.data) % 16 == 0;
  for (a.group = 1; a.group < kWarpLanes && a.group * (vectors ? kVec : 1) < part;) a.group *= 2;
  const int64_t warps = (a.edges + kWarpLanes - 1) / kWarpLanes;
  const auto blocks = static_cast<unsigned>((warps + kWarps - 1) / kWarps);
  auto* stream = static_cast<cudaStream_t>(ctx.gpu->stream());
  if (vectors) {
    sddmm_kernel<kVec><<<blocks, kWarps * kWarpLanes, 0, stream>>>(a);
  } else {
    sddmm_kernel<1><<<blocks, kWarps * kWarpLanes, 0, stream>>>(a);
  }
  cuda_check(cudaGetLastError(), "sddmm cannot be launched");
}

}  // namespace

void sddmm_fwd_cuda(Ctx& ctx, const SddmmFwd& op, std::span<std::byte>) {
  check_sddmm(op);
  if (op.y.count() == 0) return;
  (op.u ? op.u : op.v).dtype == DType::bf16 ? launch<__nv_bfloat16>(ctx, op) : launch<float>(ctx, op);
}

}  // namespace braid
