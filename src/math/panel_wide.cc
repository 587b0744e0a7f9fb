// The blocks of panel_block.h with Highway: operands are widened to FP32 as they are loaded (BF16 exactly), products
// and sums are FMAs.
#include "math/panel_block.h"

#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "math/panel_wide.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include <hwy/highway.h>

#include "math/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid::panel {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using braid::HWY_NAMESPACE::load;
using braid::HWY_NAMESPACE::load_n;

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::VFromD<FloatTag>;

// The tile fills the registers: 8 x 3 sums of 32 with AVX-512, 4 x 3 of 16 elsewhere. kTileRows rows of x stay in L1.
constexpr int kTileRows = HWY_TARGET <= HWY_AVX3 ? 8 : 4;
constexpr int kTileCols = 3;
// A chain of sums waits for its own last result: one or two rows of x need more columns to keep the units busy.
constexpr int tile_cols(int rows) { return rows == 1 ? 8 : rows == 2 ? 4 : kTileCols; }

// A vector to four sums of lanes that are four apart.
using Quad = hn::Full128<float>;
HWY_INLINE hn::VFromD<Quad> quarter(Quad /*tag*/, hn::VFromD<Quad> v) { return v; }
template <class Tag, class Vec>
HWY_INLINE hn::VFromD<Quad> quarter(Tag /*d*/, Vec v) {
  const hn::Half<Tag> half;
  return quarter(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
}

template <int kCols>
HWY_INLINE void fold(const FloatVec (&acc)[kCols], float* sums, bool add) {
  if constexpr (kCols > kTileCols) {
    HWY_UNROLL(8)
    for (int n = 0; n < kCols; ++n) fold<1>({acc[n]}, sums + n, add);
    return;
  }
  const FloatTag d;
  const Quad q;
  const auto zero = hn::Zero(q);
  const auto v0 = quarter(d, acc[0]);
  const auto v1 = kCols > 1 ? quarter(d, acc[1 % kCols]) : zero, v2 = kCols > 2 ? quarter(d, acc[2 % kCols]) : zero;
  const auto v01 = hn::Add(hn::InterleaveLower(q, v0, v1), hn::InterleaveUpper(q, v0, v1));
  const auto v23 = hn::Add(hn::InterleaveLower(q, v2, zero), hn::InterleaveUpper(q, v2, zero));
  HWY_ALIGN float v[4];
  hn::Store(hn::Add(hn::ConcatLowerLower(q, v23, v01), hn::ConcatUpperUpper(q, v23, v01)), q, v);
  for (int n = 0; n < kCols; ++n) sums[n] = add ? sums[n] + v[n] : v[n];
}

// Where a tile reads. Every row is one of these plus 0 to 3 strides, which addressing modes do for free; the pointers
// are pinned to registers, because g++ 12 would keep one for each row and spill them.
template <class X, class W>
struct Walk {
  const X *x0, *x4;
  const W *w, *w4, *next;
};

template <int kRows, int kCols, bool kPart, class X, class W>
HWY_INLINE void step(const Block& b, const Walk<X, W>& p, int64_t lanes, FloatVec (&acc)[kRows][kCols]) {
  const FloatTag d;
  if constexpr (kRows <= 2) {  // many columns: a value of w is used as it is loaded, and leaves its register
    FloatVec u[kRows];
    for (int m = 0; m < kRows; ++m) {
      const X* x = p.x0 + m * b.x_stride;
      u[m] = kPart ? load_n(d, x, lanes) : load(d, x);
    }
    HWY_UNROLL(8)
    for (int n = 0; n < kCols; ++n) {
      const W* w = (n < 4 ? p.w : p.w4) + n % 4 * b.w_stride;
      const FloatVec v = kPart ? load_n(d, w, lanes) : load(d, w);
      for (int m = 0; m < kRows; ++m) acc[m][n] = hn::MulAdd(u[m], v, acc[m][n]);
    }
    return;
  }
  FloatVec v[kCols];
  HWY_UNROLL(3)
  for (int n = 0; n < kCols; ++n) v[n] = kPart ? load_n(d, p.w + n * b.w_stride, lanes) : load(d, p.w + n * b.w_stride);
  HWY_UNROLL(8)
  for (int m = 0; m < kRows; ++m) {
    const X* x = (m < 4 ? p.x0 : p.x4) + m % 4 * b.x_stride;
    FloatVec u = kPart ? load_n(d, x, lanes) : load(d, x);
    asm("" : "+x"(u.raw));  // or g++ 12 loads it once per column
    HWY_UNROLL(3)
    for (int n = 0; n < kCols; ++n) acc[m][n] = hn::MulAdd(u, v[n], acc[m][n]);
  }
}

// kRows x kCols sums over the depth. Prefetches rows of the next block, from `next` on.
template <int kRows, int kCols, class X, class W>
HWY_INLINE void tile(const Block& b, const X* x, const W* w, const W* next, int ahead, float* sums) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  FloatVec acc[kRows][kCols];
  HWY_UNROLL(8)
  for (int m = 0; m < kRows; ++m) {
    HWY_UNROLL(8)
    for (int n = 0; n < kCols; ++n) acc[m][n] = hn::Zero(d);
  }
  Walk<X, W> p{x, x + 4 * b.x_stride, w, w + 4 * b.w_stride, next};
  int64_t k = b.depth;
  constexpr auto kLine = static_cast<int64_t>(64 / sizeof(W));
  for (; k >= kLine; k -= kLine) {
    for (int i = 0; i < ahead; ++i) asm volatile("prefetcht1 %0" : : "m"(p.next[i * b.w_stride]));
    p.next += kLine;
    for (int64_t i = 0; i < kLine; i += lanes) {
      asm("" : "+r"(p.x0), "+r"(p.x4), "+r"(p.w), "+r"(p.w4));
      step<kRows, kCols, false>(b, p, lanes, acc);
      p.x0 += lanes, p.x4 += lanes, p.w += lanes, p.w4 += lanes;
    }
  }
  for (; k >= lanes; k -= lanes) {
    step<kRows, kCols, false>(b, p, lanes, acc);
    p.x0 += lanes, p.x4 += lanes, p.w += lanes, p.w4 += lanes;
  }
  if (k > 0) step<kRows, kCols, true>(b, p, k, acc);
  HWY_UNROLL(8)
  for (int m = 0; m < kRows; ++m) fold(acc[m], sums + m * b.sums_stride, b.add);
}

// kRows rows of x, from row m on, times all of w.
template <int kRows, class X, class W>
void rows(const Block& b, int64_t m, Ahead ahead) {
  const X* x = static_cast<const X*>(b.x) + m * b.x_stride;
  const W* w = static_cast<const W*>(b.w);
  const W* next = static_cast<const W*>(ahead.last > ahead.first ? b.next_w : b.w) + ahead.first * b.w_stride;
  float* sums = b.sums + m * b.sums_stride;
  constexpr int kCols = tile_cols(kRows);
  int64_t n = 0;
  for (; n + kCols <= b.cols; n += kCols) {
    const int64_t at = n * b.w_stride;
    tile<kRows, kCols>(b, x, w + at, next + at, ahead.last - ahead.first, sums + n);
  }
  for (; n < b.cols; ++n) {
    const int64_t at = n * b.w_stride;
    tile<kRows, 1>(b, x, w + at, next + at, next != w, sums + n);
  }
}

// The same for rows of BF16, which are widened once for all columns: in every tile, it would use the ports of as many
// FMAs.
template <int kRows, class W>
HWY_INLINE void rows_widened(const Block& b, int64_t m, Ahead ahead) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int64_t kStride = kWideDepth + 16;  // not a power of two, so that rows use different sets of L1
  HWY_ALIGN float wide[kRows * kStride];
  for (int r = 0; r < kRows; ++r) {
    const Bf16* x = static_cast<const Bf16*>(b.x) + (m + r) * b.x_stride;
    float* out = wide + r * kStride;
    int64_t k = 0;
    for (; k + lanes <= b.depth; k += lanes) hn::Store(load(d, x + k), d, out + k);
    if (k < b.depth) hn::Store(load_n(d, x + k, b.depth - k), d, out + k);
  }
  Block some = b;
  some.x = wide;
  some.x_stride = kStride;
  some.sums = b.sums + m * b.sums_stride;
  rows<kRows, float, W>(some, 0, ahead);
}

template <class X, class W>
HWY_INLINE void block(const Block& b) {
  // Rows that fill no tile are taken four, two and one together: one by one they would cost as many tiles.
  const int64_t rest = b.rows % kTileRows;
  const int64_t tiles = b.rows / kTileRows + rest / 4 + rest % 4 / 2 + rest % 2;
  int64_t m = 0, tile = 0;
  const auto take = [&]<int kRows>(std::integral_constant<int, kRows>) {
    for (; m + kRows <= b.rows; m += kRows, ++tile) {
      const Ahead ahead = ahead_of(b, tile, tiles, tile_cols(kRows));
      if constexpr (std::is_same_v<X, Bf16> && kRows > 2) {
        rows_widened<kRows, W>(b, m, ahead);
      } else {
        rows<kRows, X, W>(b, m, ahead);
      }
    }
  };
  take(std::integral_constant<int, kTileRows>());
  take(std::integral_constant<int, 4>());
  take(std::integral_constant<int, 2>());
  take(std::integral_constant<int, 1>());
}

// Rows of w are read a few at a time, as many as keep the units busy, and the following ones are prefetched.
template <int kRows, class X, class W>
HWY_INLINE void stream_rows(const Stream& s) {
  constexpr int kCols = HWY_TARGET <= HWY_AVX3 ? 2 : 4;
  Block b = s.block;
  const auto part = [&]<int kSome>(int64_t n, std::integral_constant<int, kSome>) {
    for (int64_t k = 0; k < s.block.depth; k += s.depth_part) {
      b.depth = HWY_MIN(s.depth_part, s.block.depth - k);
      b.add = k > 0;
      const W* w = static_cast<const W*>(s.block.w) + n * b.w_stride + k;
      tile<kRows, kSome>(b, static_cast<const X*>(s.block.x) + k, w, w + kSome * b.w_stride, kSome, s.block.sums + n);
    }
  };
  int64_t n = 0;
  for (; n + kCols <= s.block.cols; n += kCols) part(n, std::integral_constant<int, kCols>());
  for (; n < s.block.cols; ++n) part(n, std::integral_constant<int, 1>());
}

template <class X, class W>
HWY_INLINE void stream(const Stream& s) {
  s.block.rows == 1 ? stream_rows<1, X, W>(s) : stream_rows<2, X, W>(s);
}

void stream_f32_f32(const Stream& s) { stream<float, float>(s); }
void stream_f32_bf16(const Stream& s) { stream<float, Bf16>(s); }
void stream_bf16_bf16(const Stream& s) { stream<Bf16, Bf16>(s); }
void block_f32_f32(const Block& b) { block<float, float>(b); }
void block_f32_bf16(const Block& b) { block<float, Bf16>(b); }
void block_bf16_bf16(const Block& b) { block<Bf16, Bf16>(b); }

}  // namespace HWY_NAMESPACE
}  // namespace braid::panel
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid::panel {
HWY_EXPORT(block_f32_f32);
HWY_EXPORT(block_f32_bf16);
HWY_EXPORT(block_bf16_bf16);
HWY_EXPORT(stream_f32_f32);
HWY_EXPORT(stream_f32_bf16);
HWY_EXPORT(stream_bf16_bf16);

Kernel wide_f32_f32() {
  return {.run = &HWY_DYNAMIC_DISPATCH(block_f32_f32),
          .stream = &HWY_DYNAMIC_DISPATCH(stream_f32_f32),
          .depth_max = kWideDepth};
}
Kernel wide_f32_bf16() {
  return {.run = &HWY_DYNAMIC_DISPATCH(block_f32_bf16),
          .stream = &HWY_DYNAMIC_DISPATCH(stream_f32_bf16),
          .depth_max = kWideDepth};
}
Kernel wide_bf16_bf16() {
  return {.run = &HWY_DYNAMIC_DISPATCH(block_bf16_bf16),
          .stream = &HWY_DYNAMIC_DISPATCH(stream_bf16_bf16),
          .depth_max = kWideDepth};
}

}  // namespace braid::panel
#endif
