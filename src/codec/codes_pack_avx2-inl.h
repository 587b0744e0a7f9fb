// Helpers to round rows of BF16 to integers, for files compiled for AVX2.
#pragma once
#include <immintrin.h>

#include <limits>

#include "codec/codes.h"

namespace braid::codes {
namespace {

#define BRAID_PACK __attribute__((target("avx2,fma")))

// Eight values, zeros from the n-th on.
BRAID_PACK inline __m256 values_at(const Bf16* x, int64_t n) {
  if (n >= 8) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  alignas(32) float some[8] = {};
  for (int64_t i = 0; i < n; ++i) some[i] = to_float(x[i]);
  return _mm256_load_ps(some);
}

// The scale that maps n values to integers up to `top`: 1 if all are below kSmallest, NaN if one is not finite.
BRAID_PACK inline float scale_of(const Bf16* x, int64_t n, float top) {
  const __m256 sign = _mm256_set1_ps(-0.0f), largest = _mm256_set1_ps(std::numeric_limits<float>::max());
  __m256 most = _mm256_setzero_ps();
  int bad = 0;
  for (int64_t k = 0; k < n; k += 8) {
    const __m256 size = _mm256_andnot_ps(sign, values_at(x + k, n - k));
    bad |= _mm256_movemask_ps(_mm256_cmp_ps(size, largest, _CMP_NLE_UQ));
    most = _mm256_max_ps(most, size);
  }
  alignas(32) float eight[8];
  _mm256_store_ps(eight, most);
  float amax = 0;
  for (const float v : eight) amax = v > amax ? v : amax;
  return bad ? std::numeric_limits<float>::quiet_NaN() : amax > kSmallest ? amax / top : 1.0f;
}

}  // namespace
}  // namespace braid::codes
