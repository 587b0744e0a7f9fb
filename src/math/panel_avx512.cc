// The block of panel_block.h with vdpbf16ps, which Highway 1.0.3 lacks: BF16 pairs, FP32 sums. Only called where
// sys::machine().avx512_bf16. Tiles of 6 x 4 sums take 24 of 32 registers: 6 rows of x stay in L1 and 4 rows of w come
// from L2 for 24 dots, which leaves room among L1's outstanding misses; with more, the processor drops the prefetches
// that should overlap reading the next block with the arithmetic of this one (measured on Zen 5: with the 6 rows from
// L2 nearly all of them are lost).
#include <immintrin.h>

#include "math/panel_block.h"

// g++ 12 warns about undefined upper lanes inside its own intrinsics (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#define BRAID_DOT __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

namespace braid::panel {
namespace {

constexpr int64_t kLanes = 32;  // BF16 values of one register
constexpr int kTileRows = 6, kTileCols = 4;
constexpr int64_t kDepthMax = 2048;

template <bool kMasked>
BRAID_DOT inline __m512bh load(const char* p, __mmask32 mask) {
  return reinterpret_cast<__m512bh>(kMasked ? _mm512_maskz_loadu_epi16(mask, p) : _mm512_loadu_si512(p));
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

template <int kRows, int kCols>
BRAID_DOT inline void fold(const Block& b, const __m512 (&acc)[kRows][kCols], float* sums) {
  const __m512 zero = _mm512_setzero_ps();
#pragma GCC unroll 6
  for (int m = 0; m < kRows; ++m) {
    float* y = sums + m * b.sums_stride;
    if constexpr (kCols == kTileCols) {
      __m128 v = fold4(acc[m][0], acc[m][1], acc[m][2], acc[m][3]);
      if (b.add) v = _mm_add_ps(_mm_loadu_ps(y), v);
      _mm_storeu_ps(y, v);
    } else {
      const float v = _mm_cvtss_f32(fold4(acc[m][0], zero, zero, zero));
      *y = b.add ? *y + v : v;
    }
  }
}

// Where a tile reads: byte pointers that walk along k. Every row is one of these plus 0 to 3 strides, which addressing
// modes do for free; the pointers are pinned to registers, because g++ 12 would keep one for each row and spill them.
struct Walk {
  const char *x0, *x3, *w, *next;
};
BRAID_DOT inline void pin(Walk& p) { asm("" : "+r"(p.x0), "+r"(p.x3), "+r"(p.w), "+r"(p.next)); }

template <int kRows, int kCols, bool kMasked>
BRAID_DOT inline void step(const Walk& p, int64_t xs, int64_t ws, __mmask32 mask, __m512 (&acc)[kRows][kCols]) {
  __m512bh v[kCols];
#pragma GCC unroll 4
  for (int n = 0; n < kCols; ++n) v[n] = load<kMasked>(p.w + n * ws, mask);
#pragma GCC unroll 6
  for (int m = 0; m < kRows; ++m) {
    const __m512bh u = load<kMasked>((m < 3 ? p.x0 : p.x3) + m % 3 * xs, mask);
#pragma GCC unroll 4
    for (int n = 0; n < kCols; ++n) acc[m][n] = _mm512_dpbf16_ps(acc[m][n], u, v[n]);
  }
}

// kRows x kCols sums over the depth. Prefetches rows of the next block, from `next` on; in assembly because g++ 12
// drops _mm_prefetch from small inline functions.
template <int kRows, int kCols>
BRAID_DOT inline void tile(const Block& b, const Bf16* x, const Bf16* w, const Bf16* next, int ahead, float* sums) {
  __m512 acc[kRows][kCols];
#pragma GCC unroll 6
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int n = 0; n < kCols; ++n) acc[m][n] = _mm512_setzero_ps();
  }
  constexpr int64_t kStep = 64;  // bytes
  const int64_t xs = b.x_stride * 2, ws = b.w_stride * 2;
  Walk p{reinterpret_cast<const char*>(x), reinterpret_cast<const char*>(x) + 3 * xs, reinterpret_cast<const char*>(w),
         reinterpret_cast<const char*>(next)};
  int64_t k = b.depth;
  for (; k >= kLanes; k -= kLanes) {
    pin(p);
    for (int i = 0; i < ahead; ++i) asm volatile("prefetcht1 %0" : : "m"(p.next[i * ws]));
    step<kRows, kCols, false>(p, xs, ws, 0, acc);
    p.x0 += kStep, p.x3 += kStep, p.w += kStep, p.next += kStep;
  }
  if (k > 0) step<kRows, kCols, true>(p, xs, ws, (1u << k) - 1, acc);
  fold<kRows, kCols>(b, acc, sums);
}

// One column. With few rows the goal is many lines of w in flight, so few instructions per line; without a next block
// its own lines are prefetched again, which costs little.
template <int kRows>
BRAID_DOT inline void column(const Block& b, const Bf16* x, const Bf16* w, const Bf16* next, float* sums) {
  __m512 acc[kRows][1];
#pragma GCC unroll 6
  for (int m = 0; m < kRows; ++m) acc[m][0] = _mm512_setzero_ps();
  int64_t k = 0;
#pragma GCC unroll 4
  for (; k + kLanes <= b.depth; k += kLanes) {
    asm volatile("prefetcht1 %0" : : "m"(next[k]));
    const __m512bh v = load<false>(reinterpret_cast<const char*>(w + k), 0);
#pragma GCC unroll 6
    for (int m = 0; m < kRows; ++m) {
      acc[m][0] = _mm512_dpbf16_ps(acc[m][0], load<false>(reinterpret_cast<const char*>(x + m * b.x_stride + k), 0), v);
    }
  }
  if (k < b.depth) {
    const __mmask32 mask = (1u << (b.depth - k)) - 1;
    const __m512bh v = load<true>(reinterpret_cast<const char*>(w + k), mask);
#pragma GCC unroll 6
    for (int m = 0; m < kRows; ++m) {
      const __m512bh u = load<true>(reinterpret_cast<const char*>(x + m * b.x_stride + k), mask);
      acc[m][0] = _mm512_dpbf16_ps(acc[m][0], u, v);
    }
  }
  fold<kRows, 1>(b, acc, sums);
}

// kRows rows of x, from row m on, times all of w.
template <int kRows>
BRAID_DOT void rows(const Block& b, int64_t m, Ahead ahead) {
  const Bf16* x = static_cast<const Bf16*>(b.x) + m * b.x_stride;
  const Bf16* w = static_cast<const Bf16*>(b.w);
  const Bf16* next = static_cast<const Bf16*>(ahead.last > ahead.first ? b.next_w : b.w) + ahead.first * b.w_stride;
  float* sums = b.sums + m * b.sums_stride;
  int64_t n = 0;
  for (; n + kTileCols <= b.cols; n += kTileCols) {
    const int64_t at = n * b.w_stride, row = m + kRows + n / kTileCols;
    if (ahead.last > ahead.first) {
      tile<kRows, kTileCols>(b, x, w + at, next + at, ahead.last - ahead.first, sums + n);
    } else {  // the next rows of x, one per tile
      const bool more = n < kTileCols * kTileRows && row < b.rows;
      tile<kRows, kTileCols>(b, x, w + at, more ? static_cast<const Bf16*>(b.x) + row * b.x_stride : w, more, sums + n);
    }
  }
  for (; n < b.cols; ++n) column<kRows>(b, x, w + n * b.w_stride, next + n * b.w_stride, sums + n);
}

template <int kRows>
BRAID_DOT void stream_rows(const Stream& s) {
  Block b = s.block;
  for (int64_t n = 0; n < s.block.cols; ++n) {
    b.sums = s.block.sums + n;
    for (int64_t k = 0; k < s.block.depth; k += s.depth_part) {
      const int64_t left = s.block.depth - k;
      b.depth = left < s.depth_part ? left : s.depth_part;
      b.add = k > 0;
      const Bf16* w = static_cast<const Bf16*>(s.block.w) + n * b.w_stride + k;
      column<kRows>(b, static_cast<const Bf16*>(s.block.x) + k, w, w + s.ahead / 2, b.sums);
    }
  }
}

BRAID_DOT void dot_stream(const Stream& s) { s.block.rows == 1 ? stream_rows<1>(s) : stream_rows<2>(s); }

BRAID_DOT void dot_block(const Block& b) {
  const int64_t tiles = (b.rows + kTileRows - 1) / kTileRows;
  int64_t m = 0, tile = 0;
  for (; m + kTileRows <= b.rows; m += kTileRows, ++tile) rows<kTileRows>(b, m, ahead_of(b, tile, tiles, kTileCols));
  const Ahead ahead = ahead_of(b, tile, tiles, kTileCols);
  switch (b.rows - m) {
    case 5:
      return rows<5>(b, m, ahead);
    case 4:
      return rows<4>(b, m, ahead);
    case 3:
      return rows<3>(b, m, ahead);
    case 2:
      return rows<2>(b, m, ahead);
    case 1:
      return rows<1>(b, m, ahead);
    default:
      return;
  }
}

}  // namespace

Kernel dot_bf16_bf16() { return {.run = &dot_block, .stream = &dot_stream, .depth_max = kDepthMax}; }

}  // namespace braid::panel
