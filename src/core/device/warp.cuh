// What kernels over rows share: sums over lanes in a fixed order, numbers read and written 16 bytes at a time. For .cu
// files.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "core/view.h"

namespace braid {

constexpr int kWarpLanes = 32;
constexpr unsigned kAllLanes = ~0u;

__device__ inline int lane_of_thread() { return static_cast<int>(threadIdx.x) % kWarpLanes; }
__device__ inline int warp_of_thread() { return static_cast<int>(threadIdx.x) / kWarpLanes; }

// Over `group` neighbouring lanes, a power of two; all of them get the sum.
__device__ inline float group_sum(float v, int group = kWarpLanes) {
  for (int offset = group / 2; offset > 0; offset /= 2) v += __shfl_xor_sync(kAllLanes, v, offset);
  return v;
}
__device__ inline float warp_max(float v) {
  for (int offset = kWarpLanes / 2; offset > 0; offset /= 2) v = fmaxf(v, __shfl_xor_sync(kAllLanes, v, offset));
  return v;
}
// Over the lanes with the same number within groups of `group` lanes.
__device__ inline float sum_of_groups(float v, int group) {
  for (int offset = group; offset < kWarpLanes; offset *= 2) v += __shfl_xor_sync(kAllLanes, v, offset);
  return v;
}

// The sums of four numbers over `group` lanes, a power of two from 4: lane l of a group gets that of number l / (group
// / 4). Halves of the lanes keep halves of the numbers, so that it takes 3 exchanges and those of one sum over group
// / 4.
__device__ inline float sum_of_four(const float (&v)[4], int group) {
  const int lane = lane_of_thread();
  const bool high = (lane & (group / 2)) != 0, odd = (lane & (group / 4)) != 0;
  const float a = __shfl_xor_sync(kAllLanes, high ? v[0] : v[2], group / 2) + (high ? v[2] : v[0]);
  const float b = __shfl_xor_sync(kAllLanes, high ? v[1] : v[3], group / 2) + (high ? v[3] : v[1]);
  return group_sum(__shfl_xor_sync(kAllLanes, odd ? a : b, group / 4) + (odd ? b : a), group / 4);
}

// n / by for 0 <= n: a division in 32 bits takes a fraction of the time of one in 64.
__device__ inline int64_t quotient(int64_t n, int by) {
  return n >> 32 == 0 ? static_cast<uint32_t>(n) / static_cast<uint32_t>(by) : n / by;
}

// kVec numbers at p, which is aligned to kVec of them: one, or a multiple of 4.
template <int kVec>
__device__ void read(const float* p, float (&v)[kVec]) {
  if constexpr (kVec == 1) {
    v[0] = __ldg(p);
  } else {
#pragma unroll
    for (int i = 0; i < kVec; i += 4) {
      const float4 four = __ldg(reinterpret_cast<const float4*>(p + i));
      v[i] = four.x, v[i + 1] = four.y, v[i + 2] = four.z, v[i + 3] = four.w;
    }
  }
}
template <int kVec>
__device__ void read(const __nv_bfloat16* p, float (&v)[kVec]) {
  if constexpr (kVec == 1) {
    v[0] = __bfloat162float(*p);
  } else {
    unsigned words[kVec / 2];
    if constexpr (kVec == 8) {
      const uint4 all = __ldg(reinterpret_cast<const uint4*>(p));
      words[0] = all.x, words[1] = all.y, words[2] = all.z, words[3] = all.w;
    } else {
      static_assert(kVec == 4);
      const uint2 all = __ldg(reinterpret_cast<const uint2*>(p));
      words[0] = all.x, words[1] = all.y;
    }
#pragma unroll
    for (int i = 0; i < kVec / 2; ++i) {
      v[2 * i] = __uint_as_float(words[i] << 16);
      v[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
  }
}

template <int kVec>
__device__ void write(float* p, const float (&v)[kVec]) {
  if constexpr (kVec == 1) {
    *p = v[0];
  } else {
#pragma unroll
    for (int i = 0; i < kVec; i += 4)
      *reinterpret_cast<float4*>(p + i) = make_float4(v[i], v[i + 1], v[i + 2], v[i + 3]);
  }
}
template <int kVec>
__device__ void write(__nv_bfloat16* p, const float (&v)[kVec]) {
  if constexpr (kVec == 1) {
    *p = __float2bfloat16(v[0]);
  } else {
#pragma unroll
    for (int i = 0; i < kVec; i += 2) *reinterpret_cast<__nv_bfloat162*>(p + i) = __floats2bfloat162_rn(v[i], v[i + 1]);
  }
}

// F32 or BF16, known only when the kernel runs: for what is read or written once per row.
struct RowsIn {
  const std::byte* data;
  int64_t stride;  // between rows, in elements
  bool half;
  explicit RowsIn(const View& v) : data(v.data), stride(v.stride(0)), half(v.dtype == DType::bf16) {}
  template <int kVec>
  __device__ void get(int64_t row, int64_t c, float (&v)[kVec]) const {
    const int64_t at = row * stride + c;
    half ? read<kVec>(reinterpret_cast<const __nv_bfloat16*>(data) + at, v)
         : read<kVec>(reinterpret_cast<const float*>(data) + at, v);
  }
};
struct RowsOut {
  std::byte* data;
  int64_t stride;
  bool half;
  explicit RowsOut(const MutView& v) : data(v.data), stride(v.stride(0)), half(v.dtype == DType::bf16) {}
  template <int kVec>
  __device__ void put(int64_t row, int64_t c, const float (&v)[kVec]) const {
    const int64_t at = row * stride + c;
    half ? write<kVec>(reinterpret_cast<__nv_bfloat16*>(data) + at, v)
         : write<kVec>(reinterpret_cast<float*>(data) + at, v);
  }
};

// May rows of these be read and written `vec` numbers at a time, from multiples of `vec`?
inline bool vectors_fit(int vec, std::initializer_list<View> views) {
  for (const View& v : views) {
    if (reinterpret_cast<uintptr_t>(v.data) % 16 != 0) return false;
    if (v.shape.rank > 1 && v.stride(0) % vec != 0) return false;
  }
  return true;
}

}  // namespace braid
