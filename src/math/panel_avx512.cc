// The strip of panel_strips.h with vdpbf16ps, which Highway 1.0.3 lacks: BF16 pairs, FP32 sums. Only called where
// sys::machine().bf16_dot_fast. Tiles of 6 x 4 sums use 24 of 32 registers and make 24 dots from 10 loads; the four
// weight rows stay in L1 while the activation rows come from L2.
#include <immintrin.h>

#include "math/panel_strips.h"

// g++ 12 takes the undefined upper lanes inside its own intrinsics for mistakes of ours (its bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#define BRAID_DOT __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

namespace braid::panel {
namespace {

constexpr int64_t kLanes = 32;  // BF16 values of one register
constexpr int kTileRows = 6, kTileCols = 4;

BRAID_DOT inline __m512bh load(const Bf16* p) { return reinterpret_cast<__m512bh>(_mm512_loadu_si512(p)); }
BRAID_DOT inline __m512bh load_masked(const Bf16* p, __mmask32 mask) {
  return reinterpret_cast<__m512bh>(_mm512_maskz_loadu_epi16(mask, p));
}

// Four vectors to their four sums: halves, quarters, then inside the quarter.
BRAID_DOT inline __m128 fold4(__m512 a, __m512 b, __m512 c, __m512 d) {
  const __m512 ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  const __m512 cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
  __m512 v = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
  v = _mm512_add_ps(v, _mm512_permute_ps(v, 0x4e));
  v = _mm512_add_ps(v, _mm512_permute_ps(v, 0xb1));
  return _mm512_castps512_ps128(_mm512_maskz_compress_ps(0x1111, v));
}

// kRows x kCols sums over the depth. Meanwhile `ahead` rows of the next strip are fetched, from row `first_ahead` on;
// written as assembly because g++ 12 drops _mm_prefetch from small inline functions.
template <int kRows, int kCols>
BRAID_DOT inline void tile(const Strip& s, const Bf16* x, const Bf16* w, float* sums, int first_ahead, int ahead) {
  __m512 acc[kRows][kTileCols];
#pragma GCC unroll 6
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int n = 0; n < kTileCols; ++n) acc[m][n] = _mm512_setzero_ps();
  }
  const Bf16* next = ahead ? static_cast<const Bf16*>(s.next_w) + first_ahead * s.w_stride : w;
  int64_t k = 0;
  for (; k + kLanes <= s.depth; k += kLanes) {
    for (int i = 0; i < ahead; ++i) asm volatile("prefetcht1 %0" : : "m"(next[i * s.w_stride + k]));
    __m512bh b[kCols];
#pragma GCC unroll 4
    for (int n = 0; n < kCols; ++n) b[n] = load(w + n * s.w_stride + k);
#pragma GCC unroll 6
    for (int m = 0; m < kRows; ++m) {
      const __m512bh a = load(x + m * s.x_stride + k);
#pragma GCC unroll 4
      for (int n = 0; n < kCols; ++n) acc[m][n] = _mm512_dpbf16_ps(acc[m][n], a, b[n]);
    }
  }
  if (k < s.depth) {
    const __mmask32 mask = (1u << (s.depth - k)) - 1;
    __m512bh b[kCols];
#pragma GCC unroll 4
    for (int n = 0; n < kCols; ++n) b[n] = load_masked(w + n * s.w_stride + k, mask);
#pragma GCC unroll 6
    for (int m = 0; m < kRows; ++m) {
      const __m512bh a = load_masked(x + m * s.x_stride + k, mask);
#pragma GCC unroll 4
      for (int n = 0; n < kCols; ++n) acc[m][n] = _mm512_dpbf16_ps(acc[m][n], a, b[n]);
    }
  }
  constexpr __mmask8 kStore = (1 << kCols) - 1;
#pragma GCC unroll 6
  for (int m = 0; m < kRows; ++m) {
    float* y = sums + m * s.sums_stride;
    __m128 v = fold4(acc[m][0], acc[m][1], acc[m][2], acc[m][3]);
    if (s.add) v = _mm_add_ps(_mm_maskz_loadu_ps(kStore, y), v);
    _mm_mask_storeu_ps(y, kStore, v);
  }
}

// All rows of x against kCols rows of w. The next strip is fetched a row a tile, or all at once when there are few.
template <int kCols>
BRAID_DOT inline void columns(const Strip& s, int col) {
  const Bf16* w = static_cast<const Bf16*>(s.w) + col * s.w_stride;
  const Bf16* x = static_cast<const Bf16*>(s.x);
  float* sums = s.sums + col;
  const int per_tile = s.rows > (kTileCols - 1) * kTileRows ? 1 : kTileCols;
  int fetched = s.next_w && col == 0 ? 0 : kTileCols;
  int64_t m = 0;
  for (; m + kTileRows <= s.rows; m += kTileRows, x += kTileRows * s.x_stride, sums += kTileRows * s.sums_stride) {
    const int ahead = fetched < kTileCols ? per_tile : 0;
    tile<kTileRows, kCols>(s, x, w, sums, fetched, ahead);
    fetched += ahead;
  }
  const int ahead = fetched < kTileCols ? per_tile : 0;
  switch (s.rows - m) {
    case 5:
      return tile<5, kCols>(s, x, w, sums, fetched, ahead);
    case 4:
      return tile<4, kCols>(s, x, w, sums, fetched, ahead);
    case 3:
      return tile<3, kCols>(s, x, w, sums, fetched, ahead);
    case 2:
      return tile<2, kCols>(s, x, w, sums, fetched, ahead);
    case 1:
      return tile<1, kCols>(s, x, w, sums, fetched, ahead);
    default:
      return;
  }
}

BRAID_DOT void dot_strip(const Strip& s) {
  if (s.cols == kTileCols) return columns<kTileCols>(s, 0);
  for (int n = 0; n < s.cols; ++n) columns<1>(s, n);
}

}  // namespace

Kernel dot_bf16_bf16() { return {.run = &dot_strip, .cols = kTileCols}; }

}  // namespace braid::panel
