// The blocks of outer.h with Highway: b is widened to FP32 as it is loaded, products and sums are FMAs.
#include "math/outer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "math/outer_wide.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include <hwy/highway.h>

#include "math/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid::outer {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using braid::HWY_NAMESPACE::load;
using braid::HWY_NAMESPACE::load_n;
using braid::HWY_NAMESPACE::store;
using braid::HWY_NAMESPACE::store_n;

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::VFromD<FloatTag>;

// The tile fills the registers: 8 x 3 sums of 32 with AVX-512, 4 x 3 of 16 elsewhere.
constexpr int kTileRows = HWY_TARGET <= HWY_AVX3 ? 8 : 4;
constexpr int kTileVecs = 3;
constexpr int64_t kDepth = 256;  // 48 columns of b: 48 KiB of F32

// kRows rows by kVecs vectors from (m, n) on; of `lanes` columns only, where kPart.
template <int kRows, int kVecs, bool kPart, class B>
HWY_INLINE void tile(const OuterBlock& t, int64_t m, int64_t n, int64_t part) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  float* c = t.c + m * t.c_stride + n;
  FloatVec acc[kRows][kVecs];
  HWY_UNROLL(8)
  for (int i = 0; i < kRows; ++i) {
    HWY_UNROLL(3)
    for (int v = 0; v < kVecs; ++v) {
      const float* from = c + i * t.c_stride + v * lanes;
      acc[i][v] = !t.add ? hn::Zero(d) : kPart ? load_n(d, from, part) : load(d, from);
    }
  }
  const float* a = static_cast<const float*>(t.a) + m * t.a_row;
  const B* b = static_cast<const B*>(t.b) + n;
  for (int64_t k = 0; k < t.depth; ++k, a += t.a_step, b += t.b_stride) {
    FloatVec w[kVecs];
    HWY_UNROLL(3)
    for (int v = 0; v < kVecs; ++v) w[v] = kPart ? load_n(d, b + v * lanes, part) : load(d, b + v * lanes);
    HWY_UNROLL(8)
    for (int i = 0; i < kRows; ++i) {
      FloatVec u = hn::Set(d, a[i * t.a_row]);
      asm("" : "+x"(u.raw));  // or g++ 12 broadcasts it once a column
      HWY_UNROLL(3)
      for (int v = 0; v < kVecs; ++v) acc[i][v] = hn::MulAdd(u, w[v], acc[i][v]);
    }
  }
  HWY_UNROLL(8)
  for (int i = 0; i < kRows; ++i) {
    HWY_UNROLL(3)
    for (int v = 0; v < kVecs; ++v) {
      float* to = c + i * t.c_stride + v * lanes;
      kPart ? store_n(acc[i][v], d, to, part) : store(acc[i][v], d, to);
    }
  }
}

template <int kVecs, bool kPart, class B>
void column(const OuterBlock& t, int64_t n, int64_t part) {
  int64_t m = 0;
  for (; m + kTileRows <= t.rows; m += kTileRows) tile<kTileRows, kVecs, kPart, B>(t, m, n, part);
  if (kTileRows > 4 && m + 4 <= t.rows) tile<4, kVecs, kPart, B>(t, m, n, part), m += 4;
  if (m + 2 <= t.rows) tile<2, kVecs, kPart, B>(t, m, n, part), m += 2;
  if (m < t.rows) tile<1, kVecs, kPart, B>(t, m, n, part);
}

template <class B>
HWY_INLINE void block(const OuterBlock& block) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t k = 0; k < block.depth || k == 0; k += kDepth) {
    OuterBlock t = block;
    t.a = static_cast<const float*>(block.a) + k * block.a_step;
    t.b = static_cast<const B*>(block.b) + k * block.b_stride;
    t.depth = block.depth - k < kDepth ? block.depth - k : kDepth;
    t.add = block.add || k > 0;
    int64_t n = 0;
    for (; n + kTileVecs * lanes <= t.cols; n += kTileVecs * lanes) column<kTileVecs, false, B>(t, n, 0);
    for (; n + lanes <= t.cols; n += lanes) column<1, false, B>(t, n, 0);
    if (n < t.cols) column<1, true, B>(t, n, t.cols - n);
  }
}

void block_f32(const OuterBlock& t) { block<float>(t); }
void block_bf16(const OuterBlock& t) { block<Bf16>(t); }

}  // namespace HWY_NAMESPACE
}  // namespace braid::outer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {
namespace outer {

HWY_EXPORT(block_f32);
HWY_EXPORT(block_bf16);

void wide_f32(const OuterBlock& block) { HWY_DYNAMIC_DISPATCH(block_f32)(block); }
void wide_bf16(const OuterBlock& block) { HWY_DYNAMIC_DISPATCH(block_bf16)(block); }

}  // namespace outer

void outer_product(PanelClass c, DType b_type, const OuterBlock& block) {
  if (c == PanelClass::bf16_dot) return outer::dot_bf16(block);
  b_type == DType::bf16 ? outer::wide_bf16(block) : outer::wide_f32(block);
}

}  // namespace braid
#endif
