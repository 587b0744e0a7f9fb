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
constexpr int kChunks = 4;  // of 32 edges that a warp takes, so that it seldom searches all rows

// n / by for 0 <= n < 32 by and by <= 2^17.
struct Divisor {
  int by, shift;  // shift: by a power of two; else -1
  uint64_t inverse;
  explicit Divisor(int d)
      : by(d), shift(-1), inverse(((uint64_t{1} << 40) + static_cast<uint64_t>(d) - 1) / static_cast<uint64_t>(d)) {
    for (int bit = 0; bit < 31; ++bit) shift = d == 1 << bit ? bit : shift;
  }
  __device__ int quotient(int n) const {
    return shift >= 0 ? n >> shift : static_cast<int>(static_cast<uint64_t>(n) * inverse >> 40);
  }
};

template <class X>
struct Args {
  const int64_t* rowptr;
  const int32_t* col;
  int64_t rows, edges;
  const X *u, *v;  // v may be null, as u
  int u_stride, v_stride;
  const float *u_scale, *edge;  // may be null
  float* y;
  float scale;
  PairOp op;
  int width, values, part;
  int group;        // lanes that share a dot, a power of two
  Divisor divisor;  // of pairs by values, or of vectors of channels by those of an edge
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
__device__ void dots(const Args<X>& a, int64_t first, int count, int64_t low, int row, int source) {
  constexpr int kBatch = 4;
  const int lane = lane_of_thread(), groups = kWarpLanes / a.group;
  const X* u_low = a.u + low * a.u_stride;
  for (int block = 0; block < a.values; ++block) {
    float mine = 0;
    for (int from = 0; from < a.group; from += kBatch) {
      const X *u[kBatch], *v[kBatch];
      bool there[kBatch];
      float sums[kBatch] = {};
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int step = min(from + b, a.group - 1), pair = block * kWarpLanes + step * groups + lane / a.group;
        const int e = a.divisor.quotient(pair), channel = (pair - e * a.values) * a.part;
        const int i = __shfl_sync(kAllLanes, row, e), j = __shfl_sync(kAllLanes, source, e);
        there[b] = e < count && from + b < a.group;
        u[b] = u_low + channel + int64_t{i} * a.u_stride;
        v[b] = a.v ? a.v + channel + int64_t{j} * a.v_stride : nullptr;
      }
      for (int c = lane % a.group * kVec; c < a.part; c += a.group * kVec) {
        float left[kBatch][kVec] = {}, right[kBatch][kVec];
#pragma unroll
        for (int b = 0; b < kBatch; ++b) {
#pragma unroll
          for (int n = 0; n < kVec; ++n) right[b][n] = 1;
          if (!there[b]) continue;
          read<kVec>(u[b] + c, left[b]);
          if (a.v) read<kVec>(v[b] + c, right[b]);
        }
#pragma unroll
        for (int b = 0; b < kBatch; ++b) {
#pragma unroll
          for (int n = 0; n < kVec; ++n) sums[b] = fmaf(left[b][n], right[b][n], sums[b]);
        }
      }
      if (a.group >= kBatch) {
        // This lane's pair is number lane / groups of the block: of this batch, or not.
        const int b = lane / groups - from, quarter = a.group / 4;
        const float sum = sum_of_four(sums, a.group);
        const float got = __shfl_sync(kAllLanes, sum, lane % groups * a.group + (b & 3) * quarter);
        if (b >= 0 && b < kBatch) mine = got;
      } else {
#pragma unroll
        for (int b = 0; b < kBatch; ++b) {
          const float sum = __shfl_sync(kAllLanes, group_sum(sums[b], a.group), lane % groups * a.group);
          if (lane / groups == from + b) mine = sum;
        }
      }
    }
    const int pair = block * kWarpLanes + lane, e = a.divisor.quotient(pair);
    const int64_t i = low + __shfl_sync(kAllLanes, row, e), at = first * a.values + pair;
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
__device__ void pairs(const Args<X>& a, int64_t first, int count, int64_t low, int row, int source) {
  const int units = a.divisor.by;
#pragma unroll 4
  for (int block = 0; block < units; ++block) {
    const int unit = block * kWarpLanes + lane_of_thread(), e = a.divisor.quotient(unit), c = (unit - e * units) * kVec;
    const int i = __shfl_sync(kAllLanes, row, e), j = __shfl_sync(kAllLanes, source, e);
    if (e >= count) continue;
    float u[kVec] = {}, v[kVec] = {};
    if (a.u) read<kVec>(a.u + (low + i) * a.u_stride + c, u);
    if (a.v) read<kVec>(a.v + int64_t{j} * a.v_stride + c, v);
#pragma unroll
    for (int n = 0; n < kVec; ++n) u[n] = pair(a.op, u[n], v[n]);
    write<kVec>(a.y + (first + e) * a.width + c, u);
  }
}

template <int kVec, bool kSums, class X>
__global__ void __launch_bounds__(kWarps* kWarpLanes) sddmm_kernel(Args<X> a) {
  const int64_t begin = (static_cast<int64_t>(blockIdx.x) * kWarps + warp_of_thread()) * kChunks * kWarpLanes;
  if (begin >= a.edges) return;
  const int64_t stop = min(a.edges, begin + kChunks * kWarpLanes), end = a.rows - 1;
  int64_t low = row_of_warp(a.rowptr, 0, end, begin);
  for (int64_t first = begin; first < stop; first += kWarpLanes) {
    const int count = static_cast<int>(min(static_cast<int64_t>(kWarpLanes), stop - first));
    const int64_t last = first + count - 1, own = min(first + lane_of_thread(), last);
    const int64_t near = min(end, low + kWarpLanes);
    const int64_t high = row_of_warp(a.rowptr, low, a.rowptr[near] > last ? near : end, last);
    const int row = static_cast<int>(row_of(a.rowptr, low, high, own) - low), source = a.col[own];
    if constexpr (kSums) {
      dots<kVec>(a, first, count, low, row, source);
    } else {
      pairs<kVec>(a, first, count, low, row, source);
    }
    low = high;
  }
}

template <class X>
void launch(Ctx& ctx, const SddmmFwd& op) {
  constexpr int kVec = 16 / static_cast<int>(sizeof(X));
  const bool sums = op.op == PairOp::dot || op.op == PairOp::square;
  const View &u = op.u ? op.u : op.v, &v = op.v ? op.v : op.u;
  const auto width = static_cast<int>(u.dim(1)), values = static_cast<int>(op.y.dim(1));
  const int part = sums ? width / values : width;
  const bool vectors =
      part % kVec == 0 && vectors_fit(kVec, {u, v}) && reinterpret_cast<uintptr_t>(op.y.data) % 16 == 0;
  const int vec = vectors ? kVec : 1;
  Args<X> a{.rowptr = op.rowptr.as<int64_t>(),
            .col = op.col.as<int32_t>(),
            .rows = op.rowptr.dim(0) - 1,
            .edges = op.col.dim(0),
            .u = reinterpret_cast<const X*>(op.u.data),
            .v = reinterpret_cast<const X*>(op.v.data),
            .u_stride = static_cast<int>(u.stride(0)),
            .v_stride = static_cast<int>(v.stride(0)),
            .u_scale = op.u_scale ? op.u_scale.as<float>() : nullptr,
            .edge = op.edge ? op.edge.as<float>() : nullptr,
            .y = op.y.as<float>(),
            .scale = op.scale,
            .op = op.op,
            .width = width,
            .values = values,
            .part = part,
            .group = 1,
            .divisor = Divisor(sums ? values : width / vec)};
  while (a.group < kWarpLanes && a.group * vec < part) a.group *= 2;
  const int64_t chunk = int64_t{kWarps} * kChunks * kWarpLanes;
  const auto blocks = static_cast<unsigned>((a.edges + chunk - 1) / chunk);
  auto* stream = static_cast<cudaStream_t>(ctx.gpu->stream());
  const auto go = [&](auto* kernel) { kernel<<<blocks, kWarps * kWarpLanes, 0, stream>>>(a); };
  if (sums) {
    vectors ? go(&sddmm_kernel<kVec, true, X>) : go(&sddmm_kernel<1, true, X>);
  } else {
    vectors ? go(&sddmm_kernel<kVec, false, X>) : go(&sddmm_kernel<1, false, X>);
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
