// Vector helpers that several kernels share. Re-included once per target (Highway's foreach_target): include it after
// hwy/highway.h, inside no namespace.
//   load(d, p)      one vector of floats from float*, Bf16*, F8E4M3* or int8_t*
//   load_n(d, p, n) the same, zeros from lane n on; never reads past p + n
//   store(v, d, p)  rounds to nearest even where p is Bf16*
#if defined(BRAID_MATH_VEC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BRAID_MATH_VEC_INL_H_
#undef BRAID_MATH_VEC_INL_H_
#else
#define BRAID_MATH_VEC_INL_H_
#endif

#include <hwy/highway.h>
#include <cstdint>

#include "core/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class Tag>
HWY_INLINE hn::VFromD<Tag> load(Tag d, const float* p) {
  return hn::LoadU(d, p);
}
template <class Tag>
HWY_INLINE hn::VFromD<Tag> load(Tag d, const Bf16* p) {
  const hn::Rebind<uint16_t, Tag> d16;
  const hn::Rebind<uint32_t, Tag> d32;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, &p->bits))));
}
template <class Tag>
HWY_INLINE hn::VFromD<Tag> load(Tag d, const int8_t* p) {
  const hn::Rebind<int8_t, Tag> d8;
  const hn::Rebind<int32_t, Tag> d32;
  return hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, p)));
}
// Exponent and mantissa moved to their places in FP32 and rebiased; the eight magnitudes below the least normal number
// are converted as integers, since processors are slow to multiply what is subnormal.
template <class Tag>
HWY_INLINE hn::VFromD<Tag> load(Tag d, const F8E4M3* p) {
  const hn::Rebind<uint8_t, Tag> d8;
  const hn::Rebind<uint32_t, Tag> d32;
  const hn::Rebind<int32_t, Tag> i32;
  const auto bits = hn::PromoteTo(d32, hn::LoadU(d8, &p->bits)), magnitude = hn::And(bits, hn::Set(d32, 0x7f));
  const auto normal = hn::Add(hn::ShiftLeft<20>(magnitude), hn::Set(d32, (127 - 7) << 23));
  const auto small = hn::Mul(hn::ConvertTo(d, hn::BitCast(i32, magnitude)), hn::Set(d, 0x1p-9f));
  const auto finite = hn::IfThenElse(hn::Lt(magnitude, hn::Set(d32, 8)), hn::BitCast(d32, small), normal);
  const auto value = hn::IfThenElse(hn::Eq(magnitude, hn::Set(d32, 0x7f)), hn::Set(d32, 0x7fc00000), finite);
  return hn::BitCast(d, hn::Or(value, hn::ShiftLeft<24>(hn::And(bits, hn::Set(d32, 0x80)))));
}
template <class Tag, class Num>
HWY_INLINE hn::VFromD<Tag> load_n(Tag d, const Num* p, int64_t n) {
  HWY_ALIGN Num lanes[HWY_MAX_BYTES / sizeof(float)] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i] = p[i];
  return load(d, lanes);
}

template <class Tag>
HWY_INLINE void store(hn::VFromD<Tag> v, Tag d, float* p) {
  hn::StoreU(v, d, p);
}
template <class Tag>
HWY_INLINE void store(hn::VFromD<Tag> v, Tag, Bf16* p) {
  const hn::Rebind<uint16_t, Tag> d16;
  const hn::Rebind<uint32_t, Tag> d32;
  const auto bits = hn::BitCast(d32, v);
  const auto even = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(even, hn::Set(d32, 0x7fff))));
  const auto nan = hn::Or(hn::ShiftRight<16>(bits), hn::Set(d32, 0x40));
  const auto is_nan = hn::RebindMask(d32, hn::IsNaN(v));
  hn::StoreU(hn::TruncateTo(d16, hn::IfThenElse(is_nan, nan, rounded)), d16, &p->bits);
}
template <class Tag, class Num>
HWY_INLINE void store_n(hn::VFromD<Tag> v, Tag d, Num* p, int64_t n) {
  HWY_ALIGN Num lanes[HWY_MAX_BYTES / sizeof(float)];
  store(v, d, lanes);
  for (int64_t i = 0; i < n; ++i) p[i] = lanes[i];
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();
#endif
