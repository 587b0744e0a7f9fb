// The packed kernel with vdpbf16ps, which Highway 1.0.3 lacks. A panel is [depth / 2][width] pairs along k. Tiles of
// 8 x 48 sums take 24 of 32 registers; a pair of depths costs 3 loads of b and 8 broadcasts of a for 24 dots, so that
// the two load ports keep up with the two dot units (98% of the register-only rate on Zen 5 with a in L1, b in L2).
#include <immintrin.h>

#include "math/packed_kernel.h"

// g++ 12 takes the undefined upper lanes inside its own intrinsics for mistakes of ours (its bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#define BRAID_DOT __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

namespace braid::packed {
namespace {

constexpr int kTileRows = 8, kTileVectors = 3;
constexpr int64_t kLanes = 16;  // pairs, or floats, of one register

BRAID_DOT void tile(const Tile& t) {
  __m512 acc[kTileRows][kTileVectors];
  const char *a = static_cast<const char*>(t.a), *b = static_cast<const char*>(t.b);
#pragma GCC unroll 8
  for (int m = 0; m < kTileRows; ++m) {
#pragma GCC unroll 3
    for (int n = 0; n < kTileVectors; ++n) {
      acc[m][n] = _mm512_setzero_ps();
      asm volatile("prefetcht0 %0" : : "m"(t.y[m * t.y_stride + n * kLanes]));
    }
  }
#pragma GCC unroll 2
  for (int64_t k = 0; k < t.depth; k += 2) {
    asm("" : "+r"(a), "+r"(b));
    __m512 v[kTileVectors];
#pragma GCC unroll 3
    for (int n = 0; n < kTileVectors; ++n) {
      v[n] = _mm512_loadu_ps(b + n * 64);
      asm("" : "+v"(v[n]));
    }
#pragma GCC unroll 8
    for (int m = 0; m < kTileRows; ++m) {
      __m512 u = _mm512_castsi512_ps(_mm512_set1_epi32(reinterpret_cast<const int*>(a)[m]));
      asm("" : "+v"(u));  // or g++ 12 broadcasts once a dot
#pragma GCC unroll 3
      for (int n = 0; n < kTileVectors; ++n) {
        acc[m][n] = _mm512_dpbf16_ps(acc[m][n], reinterpret_cast<__m512bh>(u), reinterpret_cast<__m512bh>(v[n]));
      }
    }
    a += kTileRows * 4, b += kTileVectors * 64;
  }
#pragma GCC unroll 8
  for (int m = 0; m < kTileRows; ++m) {
#pragma GCC unroll 3
    for (int n = 0; n < kTileVectors; ++n) {
      float* y = t.y + m * t.y_stride + n * kLanes;
      _mm512_storeu_ps(y, t.add ? _mm512_add_ps(_mm512_loadu_ps(y), acc[m][n]) : acc[m][n]);
    }
  }
}

BRAID_DOT inline __mmask16 first(int64_t n) {
  return static_cast<__mmask16>(n >= kLanes ? 0xffff : n <= 0 ? 0 : (1u << n) - 1);
}

// Up to 16 values at p as BF16, in the low halves of 32 bits.
BRAID_DOT inline __m512i values_at(const Source& s, int64_t at, __mmask16 mask) {
  if (s.bf16) return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, static_cast<const uint16_t*>(s.data) + at));
  const __m512 v = _mm512_maskz_loadu_ps(mask, static_cast<const float*>(s.data) + at);
  return _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v)));
}

BRAID_DOT void pack_across(const Source& s, int64_t width, int64_t n, int64_t depth, int32_t* panel) {
  for (int64_t i = 0; i < width; i += kLanes) {
    const __mmask16 in = first(n - i), out = first(width - i);
    for (int64_t k = 0; k < depth; k += 2) {
      const __m512i low = values_at(s, k * s.stride + i, in);
      const __m512i high = k + 1 < depth ? values_at(s, (k + 1) * s.stride + i, in) : _mm512_setzero_si512();
      _mm512_mask_storeu_epi32(panel + k / 2 * width + i, out, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
  }
}

// Up to 32 values along k as 16 pairs.
BRAID_DOT inline __m512i pairs_at(const Source& s, int64_t at, int64_t n) {
  if (s.bf16) {
    const __mmask32 mask = n >= 32 ? 0xffffffffu : (1u << n) - 1;
    return _mm512_maskz_loadu_epi16(mask, static_cast<const uint16_t*>(s.data) + at);
  }
  const auto* p = static_cast<const float*>(s.data) + at;
  const __m512 low = _mm512_maskz_loadu_ps(first(n), p), high = _mm512_maskz_loadu_ps(first(n - kLanes), p + kLanes);
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

BRAID_DOT inline void transpose(__m512i (&r)[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
  }
}

BRAID_DOT void pack_along(const Source& s, int64_t width, int64_t n, int64_t depth, int32_t* panel) {
  for (int64_t i = 0; i < width; i += kLanes) {
    const __mmask16 out = first(width - i);
    for (int64_t k = 0; k < depth; k += 2 * kLanes) {
      __m512i r[16];
#pragma GCC unroll 16
      for (int j = 0; j < 16; ++j) {
        r[j] = i + j < n ? pairs_at(s, (i + j) * s.stride + k, depth - k) : _mm512_setzero_si512();
      }
      transpose(r);
      const int64_t pairs = (depth - k + 1) / 2;
#pragma GCC unroll 16
      for (int j = 0; j < 16; ++j) {
        if (j < pairs) _mm512_mask_storeu_epi32(panel + (k / 2 + j) * width + i, out, r[j]);
      }
    }
  }
}

BRAID_DOT void pack(const Source& s, int64_t width, int64_t n, int64_t depth, void* panel) {
  (s.along ? pack_along : pack_across)(s, width, n, depth, static_cast<int32_t*>(panel));
}

}  // namespace

Kernel dot_bf16() {
  return {.rows = kTileRows, .cols = kTileVectors * kLanes, .step = 2, .value_bytes = 2, .pack = &pack, .tile = &tile};
}

}  // namespace braid::packed
