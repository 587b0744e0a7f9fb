// The strips of panel_strips.h with Highway: operands are widened to FP32 as they are loaded (BF16 exactly), products
// and sums are FMAs. The tile fills the registers of each target: 6 x 4 sums of 32 with AVX-512, 4 x 3 of 16 elsewhere.
#include "math/panel_strips.h"

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

constexpr bool kManyRegisters = HWY_TARGET <= HWY_AVX3;
constexpr int kTileRows = kManyRegisters ? 6 : 4;
constexpr int kTileCols = kManyRegisters ? 4 : 3;

template <class Num>
HWY_INLINE void fetch(const Num* p) {
  asm volatile("prefetcht1 %0" : : "m"(*p));
}

// kRows x kCols sums over the depth; meanwhile `ahead` rows of the next strip are fetched, from `first_ahead` on.
template <int kRows, int kCols, class X, class W>
HWY_INLINE void tile(const Strip& s, const X* x, const W* w, float* sums, int first_ahead, int ahead) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  FloatVec acc[kRows][kCols];
  HWY_UNROLL(6)
  for (int m = 0; m < kRows; ++m) {
    HWY_UNROLL(4)
    for (int n = 0; n < kCols; ++n) acc[m][n] = hn::Zero(d);
  }
  const W* next = ahead ? static_cast<const W*>(s.next_w) + first_ahead * s.w_stride : w;
  int64_t k = 0;
  for (; k + lanes <= s.depth; k += lanes) {
    for (int i = 0; i < ahead; ++i) fetch(next + i * s.w_stride + k);
    FloatVec b[kCols];
    HWY_UNROLL(4)
    for (int n = 0; n < kCols; ++n) b[n] = load(d, w + n * s.w_stride + k);
    HWY_UNROLL(6)
    for (int m = 0; m < kRows; ++m) {
      const FloatVec a = load(d, x + m * s.x_stride + k);
      HWY_UNROLL(4)
      for (int n = 0; n < kCols; ++n) acc[m][n] = hn::MulAdd(a, b[n], acc[m][n]);
    }
  }
  if (k < s.depth) {
    FloatVec b[kCols];
    for (int n = 0; n < kCols; ++n) b[n] = load_n(d, w + n * s.w_stride + k, s.depth - k);
    HWY_UNROLL(6)
    for (int m = 0; m < kRows; ++m) {
      const FloatVec a = load_n(d, x + m * s.x_stride + k, s.depth - k);
      HWY_UNROLL(4)
      for (int n = 0; n < kCols; ++n) acc[m][n] = hn::MulAdd(a, b[n], acc[m][n]);
    }
  }
  HWY_UNROLL(6)
  for (int m = 0; m < kRows; ++m) {
    HWY_UNROLL(4)
    for (int n = 0; n < kCols; ++n) {
      float& y = sums[m * s.sums_stride + n];
      const float v = hn::GetLane(hn::SumOfLanes(d, acc[m][n]));
      y = s.add ? y + v : v;
    }
  }
}

// All rows of x against kCols rows of w. The next strip is fetched a row a tile, or all at once when there are few.
template <int kCols, class X, class W>
void columns(const Strip& s, int col) {
  const W* w = static_cast<const W*>(s.w) + col * s.w_stride;
  const X* x = static_cast<const X*>(s.x);
  float* sums = s.sums + col;
  const int per_tile = s.rows > (kTileCols - 1) * kTileRows ? 1 : kTileCols;
  int fetched = s.next_w && col == 0 ? 0 : kTileCols;
  int64_t m = 0;
  for (; m + kTileRows <= s.rows; m += kTileRows, x += kTileRows * s.x_stride, sums += kTileRows * s.sums_stride) {
    const int ahead = fetched < kTileCols ? per_tile : 0;
    tile<kTileRows, kCols>(s, x, w, sums, fetched, ahead);
    fetched += ahead;
  }
  for (; m < s.rows; ++m, x += s.x_stride, sums += s.sums_stride) {
    const int ahead = fetched < kTileCols ? per_tile : 0;
    tile<1, kCols>(s, x, w, sums, fetched, ahead);
    fetched += ahead;
  }
}

template <class X, class W>
HWY_INLINE void strip(const Strip& s) {
  if (s.cols == kTileCols) return columns<kTileCols, X, W>(s, 0);
  for (int n = 0; n < s.cols; ++n) columns<1, X, W>(s, n);
}

void strip_f32_f32(const Strip& s) { strip<float, float>(s); }
void strip_f32_bf16(const Strip& s) { strip<float, Bf16>(s); }
void strip_bf16_bf16(const Strip& s) { strip<Bf16, Bf16>(s); }
int tile_cols() { return kTileCols; }

}  // namespace HWY_NAMESPACE
}  // namespace braid::panel
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid::panel {

HWY_EXPORT(strip_f32_f32);
HWY_EXPORT(strip_f32_bf16);
HWY_EXPORT(strip_bf16_bf16);
HWY_EXPORT(tile_cols);

Kernel wide_f32_f32() { return {&HWY_DYNAMIC_DISPATCH(strip_f32_f32), HWY_DYNAMIC_DISPATCH(tile_cols)()}; }
Kernel wide_f32_bf16() { return {&HWY_DYNAMIC_DISPATCH(strip_f32_bf16), HWY_DYNAMIC_DISPATCH(tile_cols)()}; }
Kernel wide_bf16_bf16() { return {&HWY_DYNAMIC_DISPATCH(strip_bf16_bf16), HWY_DYNAMIC_DISPATCH(tile_cols)()}; }

}  // namespace braid::panel
#endif
