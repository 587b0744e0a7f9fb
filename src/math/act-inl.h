// The logistic function for kernels that gate. Re-included once per target, as math/vec-inl.h.
//   sigmoid_times(d, z, v) = v / (1 + e^-z)
#if defined(BRAID_MATH_ACT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BRAID_MATH_ACT_INL_H_
#undef BRAID_MATH_ACT_INL_H_
#else
#define BRAID_MATH_ACT_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

// Highway's Exp is wrong (not infinite) above 88.7, so -z stops at 88: e^88 is as good as infinite here.
template <class Tag>
HWY_INLINE hwy::HWY_NAMESPACE::VFromD<Tag> sigmoid_times(Tag d, hwy::HWY_NAMESPACE::VFromD<Tag> z,
                                                         hwy::HWY_NAMESPACE::VFromD<Tag> v) {
  namespace hn = hwy::HWY_NAMESPACE;
  return hn::Div(v, hn::Add(hn::Set(d, 1.0f), hn::Exp(d, hn::Min(hn::Neg(z), hn::Set(d, 88.0f)))));
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();
#endif
