// The packed kernel with vdpbf16ps, which Highway 1.0.3 lacks. A panel is [depth / 2][width] pairs along k. Tiles of
// 8 x 48 sums take 24 of 32 registers; a pair of depths costs 3 loads of b and 8 broadcasts of a for 24 dots, so that
// the two load ports keep up with the two dot units (98% of the register-only rate on Zen 5 with a in L1, b in L2).
#include <immintrin.h>

#include "codec/transpose-inl.h"
#include "math/packed_kernel.h"

#define BRAID_DOT __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

namespace braid::packed {
namespace {

constexpr int kTileRows = 8, kTileVectors = 3, kNarrowVectors = 2;
constexpr int64_t kLanes = 16;  // pairs, or floats, of one register

// kRows of a panel's kTileRows, by the columns that start there; prefetches the y of the next tile.
template <int kRows, int kVectors, bool kAhead>
BRAID_DOT void tile(const Tile& t, int64_t column, const float* next) {
  __m512 acc[kRows][kVectors];
  const char *a = static_cast<const char*>(t.a), *b = static_cast<const char*>(t.b) + column * t.depth * 2;
  float* const corner = t.y + column;
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 3
    for (int n = 0; n < kVectors; ++n) {
      acc[m][n] = t.add ? _mm512_loadu_ps(corner + m * t.y_stride + n * kLanes) : _mm512_setzero_ps();
      asm volatile("prefetcht0 %0" : : "m"(next[m * t.y_stride + n * kLanes]));
    }
  }
#pragma GCC unroll 2
  for (int64_t k = 0; k < t.depth; k += 2) {
    asm("" : "+r"(a), "+r"(b));
    __m512 v[kVectors];
#pragma GCC unroll 3
    for (int n = 0; n < kVectors; ++n) {
      v[n] = _mm512_loadu_ps(b + n * 64);
      asm("" : "+v"(v[n]));
      if (kAhead) asm volatile("prefetcht0 %0" : : "m"(b[n * 64 + t.ahead]));
    }
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
      __m512 u = _mm512_castsi512_ps(_mm512_set1_epi32(reinterpret_cast<const int*>(a)[m]));
      asm("" : "+v"(u));  // or g++ 12 broadcasts once per dot
#pragma GCC unroll 3
      for (int n = 0; n < kVectors; ++n) {
        acc[m][n] = _mm512_dpbf16_ps(acc[m][n], reinterpret_cast<__m512bh>(u), reinterpret_cast<__m512bh>(v[n]));
      }
    }
    a += kTileRows * 4, b += kVectors * 64;
  }
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 3
    for (int n = 0; n < kVectors; ++n) _mm512_storeu_ps(corner + m * t.y_stride + n * kLanes, acc[m][n]);
  }
}

template <int kRows, int kVectors, bool kAhead>
BRAID_DOT void tiles_of(const Tile& t) {
  constexpr int64_t kCols = kVectors * kLanes;
  Tile row = t;
  for (int64_t m = 0; m < t.down; ++m) {
    for (int64_t n = 0; n < t.across; ++n) {
      const bool last = n + 1 == t.across;
      const int64_t down = m + 1 < t.down ? kTileRows * t.y_stride : 0;
      tile<kRows, kVectors, kAhead>(row, n * kCols, row.y + (last ? down : (n + 1) * kCols));
    }
    row.a = static_cast<const uint16_t*>(row.a) + kTileRows * t.depth;
    row.y += kTileRows * t.y_stride;
  }
}
void tiles(const Tile& t) {
  (t.ahead > 0 ? tiles_of<kTileRows, kTileVectors, true> : tiles_of<kTileRows, kTileVectors, false>)(t);
}
void narrow_tiles(const Tile& t) {
  (t.half ? tiles_of<kTileRows / 2, kNarrowVectors, false> : tiles_of<kTileRows, kNarrowVectors, false>)(t);
}

// Where 16 pairs of one depth go: into one panel, or half each into two panels of 8, the second of which may be
// missing.
struct Out {
  int32_t *low, *high;
};
BRAID_DOT inline Out out_at(int32_t* panels, int64_t width, int64_t i, int64_t n, int64_t panel) {
  int32_t* low = panels + i / width * panel + i % width;
  return {low, width < kLanes && i + width < n ? low + panel : nullptr};
}
BRAID_DOT inline void put(const Out& out, int64_t at, __m512i v, bool whole) {
  if (whole) return _mm512_storeu_si512(out.low + at, v);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.low + at), _mm512_castsi512_si256(v));
  if (out.high) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.high + at), _mm512_extracti64x4_epi64(v, 1));
  }
}

BRAID_DOT inline __mmask16 first(int64_t n) {
  return static_cast<__mmask16>(n >= kLanes ? 0xffff : n <= 0 ? 0 : (1u << n) - 1);
}

// Up to 16 values at p as BF16, in the low halves of 32-bit lanes.
template <bool kBf16>
BRAID_DOT inline __m512i values_at(const Source& s, int64_t at, __mmask16 mask) {
  if (kBf16) return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, static_cast<const uint16_t*>(s.data) + at));
  const __m512 v = _mm512_maskz_loadu_ps(mask, static_cast<const float*>(s.data) + at);
  return _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v)));
}

template <bool kBf16>
BRAID_DOT void pack_across(const Source& s, int64_t width, int64_t n, int64_t depth, int32_t* panels) {
  const int64_t steps = (depth + 1) / 2, panel = steps * width, padded = (n + width - 1) / width * width;
  for (int64_t i = 0; i < padded; i += kLanes) {
    const __mmask16 in = first(n - i);
    const Out out = out_at(panels, width, i, n, panel);
    const bool whole = width >= kLanes;
    for (int64_t k = 0; k < depth; k += 2) {
      const __m512i low = values_at<kBf16>(s, k * s.stride + i, in);
      const __m512i high = k + 1 < depth ? values_at<kBf16>(s, (k + 1) * s.stride + i, in) : _mm512_setzero_si512();
      put(out, k / 2 * width, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)), whole);
    }
  }
}

// Up to 32 values along k as 16 pairs.
template <bool kBf16, bool kWhole>
BRAID_DOT inline __m512i pairs_at(const Source& s, int64_t at, int64_t n) {
  if (kBf16) {
    const __mmask32 mask = n >= 32 ? 0xffffffffu : (1u << n) - 1;
    const auto* p = static_cast<const uint16_t*>(s.data) + at;
    return kWhole ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi16(mask, p);
  }
  const auto* p = static_cast<const float*>(s.data) + at;
  const __m512 low = kWhole ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(first(n), p);
  const __m512 high = kWhole ? _mm512_loadu_ps(p + kLanes) : _mm512_maskz_loadu_ps(first(n - kLanes), p + kLanes);
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

// 16 values of i from `i` on by 32 of k.
template <bool kBf16, bool kWhole>
BRAID_DOT inline void load_block(const Source& s, int64_t i, int64_t k, int64_t n, int64_t depth, __m512i (&r)[16]) {
#pragma GCC unroll 16
  for (int64_t j = 0; j < 16; ++j) {
    r[j] = kWhole || i + j < n ? pairs_at<kBf16, kWhole>(s, (i + j) * s.stride + k, depth - k) : _mm512_setzero_si512();
  }
}

template <bool kBf16>
BRAID_DOT void pack_along(const Source& s, int64_t width, int64_t n, int64_t depth, int32_t* panels) {
  const int64_t steps = (depth + 1) / 2, panel = steps * width, padded = (n + width - 1) / width * width;
  for (int64_t i = 0; i < padded; i += kLanes) {
    const Out out = out_at(panels, width, i, n, panel);
    const bool whole = width >= kLanes;
    for (int64_t k = 0; k < depth; k += 2 * kLanes) {
      __m512i r[16];
      if (n - i >= kLanes && depth - k >= 2 * kLanes) {
        load_block<kBf16, true>(s, i, k, n, depth, r);
      } else {
        load_block<kBf16, false>(s, i, k, n, depth, r);
      }
      transpose(r);
      const int64_t left = steps - k / 2;
#pragma GCC unroll 16
      for (int64_t j = 0; j < 16; ++j) {
        if (j < left) put(out, (k / 2 + j) * width, r[j], whole);
      }
    }
  }
}

BRAID_DOT void pack(const Source& s, int64_t width, int64_t n, int64_t depth, void* panels) {
  auto* out = static_cast<int32_t*>(panels);
  if (s.along) {
    (s.bf16 ? pack_along<true> : pack_along<false>)(s, width, n, depth, out);
  } else {
    (s.bf16 ? pack_across<true> : pack_across<false>)(s, width, n, depth, out);
  }
}

// Panels of the tile kernel (packed_tile.cc). Columns are pairs as above in blocks of 16; rows are 32 values along k.
constexpr int64_t kTileWidth = 32, kTileStep = 32, kTileValues = kTileWidth * kTileStep;

// Sources stored across the depth are read in place, row after row.
template <bool kBf16>
BRAID_DOT void tile_cols(const Source& s, int64_t n, int64_t depth, int32_t* out) {
  const int64_t padded = (n + kTileWidth - 1) / kTileWidth * kTileWidth;
  const int64_t steps = (depth + kTileStep - 1) / kTileStep * kTileStep / 2;
  for (int64_t k = 0; k < 2 * steps; k += 2, out += kLanes) {
    for (int64_t i = 0; i < padded; i += kLanes) {
      const __mmask16 in = first(n - i);
      const __m512i low = values_at<kBf16>(s, k * s.stride + i, k < depth ? in : __mmask16{0});
      const __m512i high = values_at<kBf16>(s, (k + 1) * s.stride + i, k + 1 < depth ? in : __mmask16{0});
      _mm512_storeu_si512(out + i * steps, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
  }
}

template <bool kBf16>
BRAID_DOT void tile_cols_along(const Source& s, int64_t n, int64_t depth, int32_t* out) {
  const int64_t padded = (n + kTileWidth - 1) / kTileWidth * kTileWidth;
  const int64_t steps = (depth + kTileStep - 1) / kTileStep * kTileStep / 2;
  for (int64_t i = 0; i < padded; i += kLanes, out += kLanes * steps) {
    for (int64_t k = 0; k < depth; k += kTileStep) {
      __m512i r[16];
      if (n - i >= kLanes && depth - k >= kTileStep) {
        load_block<kBf16, true>(s, i, k, n, depth, r);
      } else {
        load_block<kBf16, false>(s, i, k, n, depth, r);
      }
      transpose(r);
#pragma GCC unroll 16
      for (int64_t j = 0; j < 16; ++j) _mm512_storeu_si512(out + (k / 2 + j) * kLanes, r[j]);
    }
  }
}

template <bool kBf16>
BRAID_DOT void tile_rows_along(const Source& s, int64_t n, int64_t depth, uint16_t* out) {
  const int64_t padded = (n + kTileWidth - 1) / kTileWidth * kTileWidth;
  const int64_t steps = (depth + kTileStep - 1) / kTileStep;
  for (int64_t i = 0; i < padded; ++i) {
    uint16_t* to = out + i / kTileWidth * steps * kTileValues + i % kTileWidth * kTileStep;
    for (int64_t k = 0; k < depth; k += kTileStep, to += kTileValues) {
      const bool whole = depth - k >= kTileStep;
      const __m512i v = i >= n  ? _mm512_setzero_si512()
                        : whole ? pairs_at<kBf16, true>(s, i * s.stride + k, kTileStep)
                                : pairs_at<kBf16, false>(s, i * s.stride + k, depth - k);
      _mm512_storeu_si512(to, v);
    }
  }
}

template <bool kBf16>
BRAID_DOT void tile_rows(const Source& s, int64_t n, int64_t depth, uint16_t* out) {
  const int64_t padded = (n + kTileWidth - 1) / kTileWidth * kTileWidth;
  const int64_t steps = (depth + kTileStep - 1) / kTileStep;
  for (int64_t k = 0; k < depth; k += kTileStep, out += kTileValues) {
    for (int64_t i = 0; i < padded; i += kLanes) {
      const __mmask16 in = first(n - i);
      __m512i r[16];
#pragma GCC unroll 16
      for (int64_t j = 0; j < 16; ++j) {
        const int64_t at = k + 2 * j;
        const __m512i low = values_at<kBf16>(s, at * s.stride + i, at < depth ? in : __mmask16{0});
        const __m512i high = values_at<kBf16>(s, (at + 1) * s.stride + i, at + 1 < depth ? in : __mmask16{0});
        r[j] = _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
      }
      transpose(r);
      uint16_t* to = out + i / kTileWidth * steps * kTileValues + i % kTileWidth * kTileStep;
#pragma GCC unroll 16
      for (int64_t j = 0; j < 16; ++j) _mm512_storeu_si512(to + j * kTileStep, r[j]);
    }
  }
}

}  // namespace

void pack_tile_rows_avx512(const Source& s, int64_t /*width*/, int64_t n, int64_t depth, void* panels) {
  auto* out = static_cast<uint16_t*>(panels);
  if (s.along) {
    (s.bf16 ? tile_rows_along<true> : tile_rows_along<false>)(s, n, depth, out);
  } else {
    (s.bf16 ? tile_rows<true> : tile_rows<false>)(s, n, depth, out);
  }
}

void pack_tile_cols_avx512(const Source& s, int64_t /*width*/, int64_t n, int64_t depth, void* panels) {
  auto* out = static_cast<int32_t*>(panels);
  if (s.along) {
    (s.bf16 ? tile_cols_along<true> : tile_cols_along<false>)(s, n, depth, out);
  } else {
    (s.bf16 ? tile_cols<true> : tile_cols<false>)(s, n, depth, out);
  }
}

Kernel dot_bf16() {
  return {.rows = kTileRows,
          .cols = kTileVectors * kLanes,
          .step = 2,
          .value_bytes = 2,
          .chain = 512,
          .pack_rows = &pack,
          .pack_cols = &pack,
          .tiles = &tiles};
}

Kernel narrow_dot_bf16() {
  Kernel kernel = dot_bf16();
  kernel.cols = kNarrowVectors * kLanes;
  kernel.halves = true;
  kernel.tiles = &narrow_tiles;
  return kernel;
}

}  // namespace braid::packed
