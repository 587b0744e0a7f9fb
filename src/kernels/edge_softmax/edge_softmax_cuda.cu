// Softmax over the edges of rows on a GPU. Bound by memory: forward reads and writes each value once, 8 bytes, backward
// 16. A warp has a row whose values fit its registers, a block a longer one; where not even its registers suffice it
// reads the row twice, the first time with a running maximum, the second time mostly from cache. Lanes hold a head each
// (or four, 16 bytes) of as many edges as fit a warp beside each other, so that reads are as contiguous as the row.
// Sums are by lane, then over lanes, then over warps, in an order that depends on the row alone.
#include <cfloat>

#include "core/device/cuda_check.cuh"
#include "core/device/gpu_runtime.h"
#include "core/device/long_rows.cuh"
#include "core/device/warp.cuh"
#include "kernels/edge_softmax/edge_softmax_rows.h"

namespace braid {
namespace {

constexpr int kWarps = 8;
constexpr int kSteps = 4;  // of a row in registers: with four heads a lane, 16 numbers, or two times that

struct Args {
  const int64_t* rowptr;
  int64_t rows, units;  // units: heads / kVec
  const float *x, *y, *dy;
  float* out;
  float slope;
};

// A strip of up to 32 units of a row: lanes are `slots` edges by `width` units.
struct Place {
  int width, slots, slot;
  int64_t unit;
  bool on;  // lanes beyond slots x width are idle
  __device__ Place(int64_t units, int64_t first) {
    width = static_cast<int>(min(static_cast<int64_t>(kWarpLanes), units - first));
    slots = kWarpLanes / width;
    slot = lane_of_thread() / width;
    unit = first + lane_of_thread() % width;
    on = slot < slots;
  }
  // Over the slots of a unit: every lane of it gets the result.
  template <class Combine>
  __device__ float across(float v, Combine&& combine) const {
    if ((width & (width - 1)) == 0) {
      for (int offset = kWarpLanes / 2; offset >= width; offset /= 2)
        v = combine(v, __shfl_xor_sync(kAllLanes, v, offset));
      return v;
    }
    const int own = lane_of_thread() % width;
    float all = __shfl_sync(kAllLanes, v, own);
    for (int s = 1; s < slots; ++s) all = combine(all, __shfl_sync(kAllLanes, v, s * width + own));
    return all;
  }
  __device__ float sum(float v) const {
    return across(v, [](float a, float b) { return a + b; });
  }
  __device__ float largest(float v) const {
    return across(v, [](float a, float b) { return fmaxf(a, b); });
  }
};

__device__ float leaky_relu(float v, float slope) { return v > 0 ? v : v * slope; }
// exp(v - top); 0 for v = -infinity, even if nothing was larger.
__device__ float scaled(float v, float top) { return expf(v - fmaxf(top, -FLT_MAX)); }

// The scores of `steps` edges of a lane; beyond the row they are -infinity.
template <int kVec>
__device__ void read_scores(const Args& a, int64_t begin, int64_t n, int64_t e, int64_t step, int64_t unit, int steps,
                            float (&s)[kSteps][kVec]) {
#pragma unroll
  for (int k = 0; k < kSteps; ++k, e += step) {
    if (k >= steps) continue;
    if (e < n) read<kVec>(a.x + ((begin + e) * a.units + unit) * kVec, s[k]);
#pragma unroll
    for (int v = 0; v < kVec; ++v) s[k][v] = e < n ? leaky_relu(s[k][v], a.slope) : -INFINITY;
  }
}

template <int kVec>
__device__ void short_forward(const Args& a, int64_t begin, int64_t n) {
  for (int64_t first = 0; first < a.units; first += kWarpLanes) {
    const Place p(a.units, first);
    float s[kSteps][kVec], top[kVec], sum[kVec] = {};
#pragma unroll
    for (int v = 0; v < kVec; ++v) top[v] = -INFINITY;
    const int steps = static_cast<int>((n + p.slots - 1) / p.slots);  // of kSteps: most rows are short
    read_scores<kVec>(a, begin, n, p.on ? p.slot : n, p.slots, p.unit, steps, s);
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      if (k >= steps) continue;
#pragma unroll
      for (int v = 0; v < kVec; ++v) top[v] = fmaxf(top[v], s[k][v]);
    }
#pragma unroll
    for (int v = 0; v < kVec; ++v) top[v] = p.largest(top[v]);
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      if (k >= steps) continue;
#pragma unroll
      for (int v = 0; v < kVec; ++v) sum[v] += s[k][v] = scaled(s[k][v], top[v]);
    }
#pragma unroll
    for (int v = 0; v < kVec; ++v) sum[v] = 1 / p.sum(sum[v]);
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      const int64_t e = k * p.slots + p.slot;
      if (k >= steps || !p.on || e >= n) continue;
#pragma unroll
      for (int v = 0; v < kVec; ++v) s[k][v] *= sum[v];
      write<kVec>(a.out + ((begin + e) * a.units + p.unit) * kVec, s[k]);
    }
  }
}

// What the warps of a block found of a strip.
template <int kVec>
using Partial = float[kWarps][kWarpLanes][kVec];

template <int kVec>
__device__ void long_forward(const Args& a, int64_t begin, int64_t n, Partial<kVec>& tops, Partial<kVec>& sums) {
  const int warp = warp_of_thread(), lane = lane_of_thread();
  for (int64_t first = 0; first < a.units; first += kWarpLanes) {
    const Place p(a.units, first);
    const int64_t step = int64_t{kWarps} * p.slots, start = p.on ? int64_t{warp} * p.slots + p.slot : n;
    const bool once = n <= kSteps * step;  // all of the row is in registers
    float s[kSteps][kVec], top[kVec], sum[kVec] = {};
#pragma unroll
    for (int v = 0; v < kVec; ++v) top[v] = -INFINITY;
    for (int64_t e = start; e < n; e += kSteps * step) {
      read_scores<kVec>(a, begin, n, e, step, p.unit, kSteps, s);
#pragma unroll
      for (int v = 0; v < kVec; ++v) {
        float next = top[v];
#pragma unroll
        for (int k = 0; k < kSteps; ++k) next = fmaxf(next, s[k][v]);
        sum[v] *= scaled(top[v], next);
#pragma unroll
        for (int k = 0; k < kSteps; ++k) sum[v] += scaled(s[k][v], next);
        top[v] = next;
      }
    }
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float most = p.largest(top[v]);
      sum[v] = p.sum(sum[v] * scaled(top[v], most));
      if (lane < p.width) tops[warp][lane][v] = most, sums[warp][lane][v] = sum[v];
    }
    __syncthreads();
    const int own = lane % p.width;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      top[v] = tops[0][own][v], sum[v] = 0;
      for (int w = 1; w < kWarps; ++w) top[v] = fmaxf(top[v], tops[w][own][v]);
      for (int w = 0; w < kWarps; ++w) sum[v] += sums[w][own][v] * scaled(tops[w][own][v], top[v]);
      sum[v] = 1 / sum[v];
    }
    __syncthreads();
    for (int64_t e = start; e < n; e += kSteps * step) {
      if (!once) read_scores<kVec>(a, begin, n, e, step, p.unit, kSteps, s);
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        if (e + k * step >= n) continue;
#pragma unroll
        for (int v = 0; v < kVec; ++v) s[k][v] = scaled(s[k][v], top[v]) * sum[v];
        write<kVec>(a.out + ((begin + e + k * step) * a.units + p.unit) * kVec, s[k]);
      }
    }
  }
}

template <int kVec>
__device__ void put_gradient(const Args& a, int64_t at, const float (&y)[kVec], const float (&dy)[kVec],
                             const float (&mean)[kVec]) {
  float x[kVec];
  read<kVec>(a.x + at, x);
#pragma unroll
  for (int v = 0; v < kVec; ++v) x[v] = y[v] * (dy[v] - mean[v]) * (x[v] > 0 ? 1.0f : a.slope);
  write<kVec>(a.out + at, x);
}

template <int kVec>
__device__ void short_backward(const Args& a, int64_t begin, int64_t n) {
  for (int64_t first = 0; first < a.units; first += kWarpLanes) {
    const Place p(a.units, first);
    float y[kSteps][kVec] = {}, dy[kSteps][kVec] = {}, mean[kVec] = {};
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      const int64_t e = k * p.slots + p.slot, at = ((begin + e) * a.units + p.unit) * kVec;
      if (!p.on || e >= n) continue;
      read<kVec>(a.y + at, y[k]);
      read<kVec>(a.dy + at, dy[k]);
    }
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
#pragma unroll
      for (int k = 0; k < kSteps; ++k) mean[v] += y[k][v] * dy[k][v];
      mean[v] = p.sum(mean[v]);
    }
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      const int64_t e = k * p.slots + p.slot;
      if (p.on && e < n) put_gradient<kVec>(a, ((begin + e) * a.units + p.unit) * kVec, y[k], dy[k], mean);
    }
  }
}

template <int kVec>
__device__ void long_backward(const Args& a, int64_t begin, int64_t n, Partial<kVec>& sums) {
  const int warp = warp_of_thread(), lane = lane_of_thread();
  for (int64_t first = 0; first < a.units; first += kWarpLanes) {
    const Place p(a.units, first);
    const int64_t step = int64_t{kWarps} * p.slots, start = p.on ? int64_t{warp} * p.slots + p.slot : n;
    const bool once = n <= kSteps * step;
    float y[kSteps][kVec], dy[kSteps][kVec], mean[kVec] = {};
    const auto at = [&](int64_t e) { return ((begin + e) * a.units + p.unit) * kVec; };
    const auto load = [&](int64_t e) {
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        if (e + k * step >= n) continue;
        read<kVec>(a.y + at(e + k * step), y[k]);
        read<kVec>(a.dy + at(e + k * step), dy[k]);
      }
    };
    for (int64_t e = start; e < n; e += kSteps * step) {
      load(e);
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
#pragma unroll
        for (int v = 0; v < kVec; ++v) mean[v] += e + k * step < n ? y[k][v] * dy[k][v] : 0.0f;
      }
    }
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      mean[v] = p.sum(mean[v]);
      if (lane < p.width) sums[warp][lane][v] = mean[v];
    }
    __syncthreads();
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      mean[v] = 0;
      for (int w = 0; w < kWarps; ++w) mean[v] += sums[w][lane % p.width][v];
    }
    __syncthreads();
    for (int64_t e = start; e < n; e += kSteps * step) {
      if (!once) load(e);
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        if (e + k * step < n) put_gradient<kVec>(a, at(e + k * step), y[k], dy[k], mean);
      }
    }
  }
}

template <int kVec, bool kForward>
__global__ void __launch_bounds__(kWarps* kWarpLanes) edge_softmax_kernel(Args a, LongRowList longs) {
  __shared__ Partial<kVec> tops, sums;
  const bool shared = longs.shared(1, [&](int64_t row, int) {
    const int64_t begin = a.rowptr[row], n = a.rowptr[row + 1] - begin;
    if constexpr (kForward) {
      long_forward<kVec>(a, begin, n, tops, sums);
    } else {
      long_backward<kVec>(a, begin, n, sums);
    }
  });
  const int64_t row = shared ? a.rows : longs.warp(kWarps);
  if (row >= a.rows) return;
  const int64_t begin = a.rowptr[row], n = a.rowptr[row + 1] - begin;
  if (n == 0 || longs.has(n)) return;
  if constexpr (kForward) {
    short_forward<kVec>(a, begin, n);
  } else {
    short_backward<kVec>(a, begin, n);
  }
}

template <int kVec, bool kForward>
void launch(Ctx& ctx, Args a, const View& rowptr, int64_t edges, int64_t heads) {
  a.units = heads / kVec;
  const int64_t slots = kWarpLanes / std::min<int64_t>(kWarpLanes, a.units);
  const LongRows longs(*ctx.gpu, rowptr, edges, kSteps * slots, 1);
  edge_softmax_kernel<kVec, kForward>
      <<<longs.blocks(a.rows, kWarps), kWarps * kWarpLanes, 0, static_cast<cudaStream_t>(ctx.gpu->stream())>>>(
          a, longs.list());
  cuda_check(cudaGetLastError(), "edge_softmax cannot be launched");
}

}  // namespace

void edge_softmax_fwd_cuda(Ctx& ctx, const EdgeSoftmaxFwd& op, std::span<std::byte>) {
  if (op.x.count() == 0) return;
  const Args a{.rowptr = op.rowptr.as<int64_t>(),
               .rows = op.rowptr.dim(0) - 1,
               .x = op.x.as<float>(),
               .out = op.y.as<float>(),
               .slope = op.slope};
  op.x.dim(1) % 4 == 0 && vectors_fit(4, {op.x, op.y}) ? launch<4, true>(ctx, a, op.rowptr, op.x.dim(0), op.x.dim(1))
                                                       : launch<1, true>(ctx, a, op.rowptr, op.x.dim(0), op.x.dim(1));
}

void edge_softmax_bwd_cuda(Ctx& ctx, const EdgeSoftmaxBwd& op, std::span<std::byte>) {
  if (op.x.count() == 0) return;
  const Args a{.rowptr = op.rowptr.as<int64_t>(),
               .rows = op.rowptr.dim(0) - 1,
               .x = op.x.as<float>(),
               .y = op.y.as<float>(),
               .dy = op.dy.as<float>(),
               .out = op.dx.as<float>(),
               .slope = op.slope};
  op.x.dim(1) % 4 == 0 && vectors_fit(4, {op.x, op.y, op.dy, op.dx})
      ? launch<4, false>(ctx, a, op.rowptr, op.x.dim(0), op.x.dim(1))
      : launch<1, false>(ctx, a, op.rowptr, op.x.dim(0), op.x.dim(1));
}

}  // namespace braid
