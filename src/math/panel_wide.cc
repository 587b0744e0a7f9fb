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

// A vector to four sums of lanes that lie four apart.
using Quad = hn::Full128<float>;
HWY_INLINE hn::VFromD<Quad> quarter(Quad /*tag*/, hn::VFromD<Quad> v) { return v; }
template <class Tag, class Vec>
HWY_INLINE hn::VFromD<Quad> quarter(Tag /*d*/, Vec v) {
  const hn::Half<Tag> half;
  return quarter(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
}

template <int kCols>
HWY_INLINE void fold(const FloatVec (&acc)[kCols], float* sums, bool add) {
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
  const W *w, *next;
};

template <int kRows, int kCols, bool kPart, class X, class W>
HWY_INLINE void step(const Block& b, const Walk<X, W>& p, int64_t lanes, FloatVec (&acc)[kRows][kCols]) {
  const FloatTag d;
  FloatVec v[kCols];
  HWY_UNROLL(3)
  for (int n = 0; n < kCols; ++n) v[n] = kPart ? load_n(d, p.w + n * b.w_stride, lanes) : load(d, p.w + n * b.w_stride);
  HWY_UNROLL(8)
  for (int m = 0; m < kRows; ++m) {
    const X* x = (m < 4 ? p.x0 : p.x4) + m % 4 * b.x_stride;
    FloatVec u = kPart ? load_n(d, x, lanes) : load(d, x);
    asm("" : "+x"(u.raw));  // or g++ 12 loads it once a column
    HWY_UNROLL(3)
    for (int n = 0; n < kCols; ++n) acc[m][n] = hn::MulAdd(u, v[n], acc[m][n]);
  }
}

// kRows x kCols sums over the depth. Meanwhile rows of the next block are fetched, `next` onwards.
template <int kRows, int kCols, class X, class W>
HWY_INLINE void tile(const Block& b, const X* x, const W* w, const W* next, int ahead, float* sums) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  FloatVec acc[kRows][kCols];
  HWY_UNROLL(8)
  for (int m = 0; m < kRows; ++m) {
    HWY_UNROLL(3)
    for (int n = 0; n < kCols; ++n) acc[m][n] = hn::Zero(d);
  }
  Walk<X, W> p{x, x + 4 * b.x_stride, w, next};
  int64_t k = b.depth;
  for (; k >= lanes; k -= lanes) {
    asm("" : "+r"(p.x0), "+r"(p.x4), "+r"(p.w), "+r"(p.next));
    for (int i = 0; i < ahead; ++i) asm volatile("prefetcht1 %0" : : "m"(p.next[i * b.w_stride]));
    step<kRows, kCols, false>(b, p, lanes, acc);
    p.x0 += lanes, p.x4 += lanes, p.w += lanes, p.next += lanes;
  }
  if (k > 0) step<kRows, kCols, true>(b, p, k, acc);
  HWY_UNROLL(8)
  for (int m = 0; m < kRows; ++m) fold(acc[m], sums + m * b.sums_stride, b.add);
}

// kRows rows of x, from row m on, meet all of w.
template <int kRows, class X, class W>
void rows(const Block& b, int64_t m, Ahead ahead) {
  const X* x = static_cast<const X*>(b.x) + m * b.x_stride;
  const W* w = static_cast<const W*>(b.w);
  const W* next = static_cast<const W*>(ahead.last > ahead.first ? b.next_w : b.w) + ahead.first * b.w_stride;
  float* sums = b.sums + m * b.sums_stride;
  int64_t n = 0;
  for (; n + kTileCols <= b.cols; n += kTileCols) {
    const int64_t at = n * b.w_stride;
    tile<kRows, kTileCols>(b, x, w + at, next + at, ahead.last - ahead.first, sums + n);
  }
  for (; n < b.cols; ++n) {
    const int64_t at = n * b.w_stride;
    tile<kRows, 1>(b, x, w + at, next + at, next != w, sums + n);
  }
}

// The same for rows of BF16, which are widened once for all columns: done in every tile, it takes the ports of as many
// FMAs.
template <int kRows, class W>
HWY_INLINE void rows_widened(const Block& b, int64_t m, Ahead ahead) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int64_t kStride = kWideDepth + 16;  // no power of two, so that rows take different sets of L1
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
  // Of the rows that fill no tile four, two and one are taken together: one by one they would cost as many tiles.
  const int64_t rest = b.rows % kTileRows;
  const int64_t tiles = b.rows / kTileRows + rest / 4 + rest % 4 / 2 + rest % 2;
  int64_t m = 0, tile = 0;
  const auto take = [&]<int kRows>(std::integral_constant<int, kRows>) {
    for (; m + kRows <= b.rows; m += kRows, ++tile) {
      const Ahead ahead = ahead_of(b, tile, tiles, kTileCols);
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

Kernel wide_f32_f32() { return {.run = &HWY_DYNAMIC_DISPATCH(block_f32_f32), .depth_max = kWideDepth}; }
Kernel wide_f32_bf16() { return {.run = &HWY_DYNAMIC_DISPATCH(block_f32_bf16), .depth_max = kWideDepth}; }
Kernel wide_bf16_bf16() { return {.run = &HWY_DYNAMIC_DISPATCH(block_bf16_bf16), .depth_max = kWideDepth}; }

}  // namespace braid::panel
#endif
