// Roofs of byte dot products on 256-bit vectors, as in roofs_avx512.cc. clang 14 has no intrinsics for AVX-VNNI.
// Volatile, or equal chains would be computed only once.
#include <immintrin.h>

#include "sys/roofs_units.h"

namespace braid::sys {

__attribute__((target("avx2"))) double unit_int8_dot_256(int64_t rounds, float* sink) {
  constexpr int kChains = 12;
  __m256i acc[kChains];
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) acc[i] = _mm256_setzero_si256();
  const __m256i x = _mm256_set1_epi8(3), y = _mm256_set1_epi8(-2);
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) asm volatile("%{vex%} vpdpbusd %2, %1, %0" : "+x"(acc[i]) : "x"(x), "x"(y));
  }
#pragma GCC unroll 12
  for (int i = 1; i < kChains; ++i) acc[0] = _mm256_add_epi32(acc[0], acc[i]);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(sink), acc[0]);
  return 64.0 * kChains * static_cast<double>(rounds);
}

__attribute__((target("avx2"))) double unit_int8_pairs(int64_t rounds, float* sink) {
  constexpr int kChains = 8;
  __m256i acc[kChains];
#pragma GCC unroll 8
  for (int i = 0; i < kChains; ++i) acc[i] = _mm256_setzero_si256();
  const __m256i x = _mm256_set1_epi8(3), y = _mm256_set1_epi8(-2);
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < kChains; ++i) {
      __m256i pairs;
      asm volatile("vpmaddubsw %3, %2, %1; vpaddw %1, %0, %0" : "+x"(acc[i]), "=&x"(pairs) : "x"(x), "x"(y));
    }
  }
#pragma GCC unroll 8
  for (int i = 1; i < kChains; ++i) acc[0] = _mm256_add_epi16(acc[0], acc[i]);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(sink), acc[0]);
  return 64.0 * kChains * static_cast<double>(rounds);
}

}  // namespace braid::sys
