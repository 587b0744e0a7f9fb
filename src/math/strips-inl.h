// Strips: n neighbouring channels of a row in a few vectors. The last vector ends where the strip does and may overlap
// the one before it, so that no width needs masks; a strip narrower than a vector takes two smaller ones. Re-included
// once per target, as math/vec-inl.h, and after it.
#if defined(BRAID_MATH_STRIPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BRAID_MATH_STRIPS_INL_H_
#undef BRAID_MATH_STRIPS_INL_H_
#else
#define BRAID_MATH_STRIPS_INL_H_
#endif

#include <hwy/highway.h>
#include <cstdint>

#include "core/view.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

inline constexpr int64_t kStripLanes = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<float>()));
inline constexpr int64_t kStripMost = 8 * kStripLanes;  // channels of a strip: half of AVX-512's registers

// Where the vectors of a strip begin: constants, but for the last.
template <class Tag, int kVecs>
struct VectorOffsets {
  int64_t at[kVecs];
  explicit VectorOffsets(int64_t n) {
    const auto lanes = static_cast<int64_t>(hn::Lanes(Tag()));
    for (int v = 0; v + 1 < kVecs; ++v) at[v] = v * lanes;
    at[kVecs - 1] = n - lanes;
  }
};

// The width of the next strip of `rest` channels: `most`, kStripMost or half of it, where there are so many, otherwise
// at most half of kStripMost. Vectors of 5 to 7 would only be more code.
HWY_INLINE int64_t next_strip(int64_t rest, int64_t most) {
  return rest >= most ? most : HWY_MIN(rest, kStripMost / 2);
}

// f.template operator()<Tag, kVecs>() with vectors for a strip of n channels.
template <class F>
HWY_INLINE void with_vectors(int64_t n, F&& f) {
  using Tag = hn::ScalableTag<float>;
  constexpr int kVecsOfEight = kStripLanes < 8 ? 2 : 1;
  if (n == 1) return f.template operator()<hn::CappedTag<float, 1>, 1>();
  if (n == 2) return f.template operator()<hn::CappedTag<float, 2>, 1>();
  if (n < 4) return f.template operator()<hn::CappedTag<float, 2>, 2>();
  if (n == 4) return f.template operator()<hn::CappedTag<float, 4>, 1>();
  if (n == 8) return f.template operator()<hn::CappedTag<float, 8>, kVecsOfEight>();
  if (n < kStripLanes && (n < 8 || kStripLanes <= 8)) return f.template operator()<hn::CappedTag<float, 4>, 2>();
  if (n < kStripLanes) return f.template operator()<hn::CappedTag<float, 8>, 2>();
  switch ((n + kStripLanes - 1) / kStripLanes) {
    case 1:
      return f.template operator()<Tag, 1>();
    case 2:
      return f.template operator()<Tag, 2>();
    case 3:
      return f.template operator()<Tag, 3>();
    case 4:
      return f.template operator()<Tag, 4>();
    default:
      return f.template operator()<Tag, 8>();
  }
}

// Highway 1.0.3 truncates eight lanes of AVX-512 wrongly: parts of a vector are rounded one by one.
template <class Tag>
HWY_INLINE void put(hn::VFromD<Tag> y, Tag d, const MutView& to, int64_t row, int64_t c) {
  if (to.dtype == DType::f32) {
    hn::StoreU(y, d, to.as<float>(row) + c);
  } else if constexpr (hn::MaxLanes(Tag()) == hn::MaxLanes(hn::ScalableTag<float>())) {
    store(y, d, to.as<Bf16>(row) + c);
  } else {
    HWY_ALIGN float lanes[hn::MaxLanes(Tag())];
    hn::Store(y, d, lanes);
    for (size_t i = 0; i < hn::Lanes(d); ++i) to.as<Bf16>(row)[c + static_cast<int64_t>(i)] = to_bf16(lanes[i]);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();
#endif
