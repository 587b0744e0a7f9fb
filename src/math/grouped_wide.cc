// Products with rows in groups, with Highway. Lanes run along the rows of a group, whose values for one column are
// contiguous; a value of x is broadcast to them. Sums of up to 12 tokens stay in registers over all columns.
#include "math/grouped_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "math/grouped_wide.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include <hwy/highway.h>

#include "math/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid::grouped {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using braid::HWY_NAMESPACE::load;

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::VFromD<FloatTag>;

// 12 tokens by 2 vectors fill 32 registers, 6 by 2 or 12 by 1 fill 16.
constexpr int kVectorsMost = 2, kTokensOfTwo = HWY_TARGET <= HWY_AVX3 ? 12 : 6;

template <int kVectors, int kTokens, class Num>
void columns_of(const Strip& s, int64_t row) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto* w = static_cast<const Num*>(s.values) + row;
  FloatVec acc[kTokens][kVectors];
  HWY_UNROLL(12)
  for (int t = 0; t < kTokens; ++t) {
    HWY_UNROLL(2)
    for (int v = 0; v < kVectors; ++v) acc[t][v] = hn::Zero(d);
  }
  for (int64_t k = 0; k < s.n; ++k) {
    const float* x = s.panel + static_cast<int64_t>(s.columns[k]) * kTokens;
    FloatVec value[kVectors];
    HWY_UNROLL(2)
    for (int v = 0; v < kVectors; ++v) value[v] = load(d, w + v * lanes);
    HWY_UNROLL(12)
    for (int t = 0; t < kTokens; ++t) {
      FloatVec u = hn::Set(d, x[t]);
      asm("" : "+x"(u.raw));  // or g++ 12 broadcasts once per product
      HWY_UNROLL(2)
      for (int v = 0; v < kVectors; ++v) acc[t][v] = hn::MulAdd(u, value[v], acc[t][v]);
    }
    w += s.height;
  }
  HWY_UNROLL(12)
  for (int t = 0; t < kTokens; ++t) {
    HWY_UNROLL(2)
    for (int v = 0; v < kVectors; ++v) hn::StoreU(acc[t][v], d, s.sums + t * s.height + row + v * lanes);
  }
}

template <int kTokens, class Num>
void tokens_of(const Strip& s) {
  constexpr int kVectors = kTokens <= kTokensOfTwo ? kVectorsMost : 1;
  const auto lanes = static_cast<int64_t>(hn::Lanes(FloatTag()));
  int64_t row = 0;
  for (; row + kVectors * lanes <= s.height; row += kVectors * lanes) columns_of<kVectors, kTokens, Num>(s, row);
  for (; row < s.height; row += lanes) columns_of<1, kTokens, Num>(s, row);
}

template <class Num>
void strip_of(const Strip& s) {
  switch (s.width) {
    case 1:
      return tokens_of<1, Num>(s);
    case 2:
      return tokens_of<2, Num>(s);
    case 4:
      return tokens_of<4, Num>(s);
    case 6:
      return tokens_of<6, Num>(s);
    case 8:
      return tokens_of<8, Num>(s);
    default:
      return tokens_of<12, Num>(s);
  }
}

void strip(const Strip& s) { s.bf16 ? strip_of<Bf16>(s) : strip_of<float>(s); }

}  // namespace HWY_NAMESPACE
}  // namespace braid::grouped
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid::grouped {
HWY_EXPORT(strip);

void wide(const Strip& s) { HWY_DYNAMIC_DISPATCH(strip)(s); }

}  // namespace braid::grouped
#endif
