// Pieces of activations. Re-included once per target, as math/vec-inl.h.
//   sigmoid_times(d, z, v) = v / (1 + e^-z)     NaN if v is, but 0 if only z is: multiply by z too
//   exp_or_nan(d, v) = e^v for v <= 88           NaN if v is: Highway's 0 would hide a failed run
//   positive_part(d, v) = max(v, 0), at_least(d, low, v) and at_most(d, high, v): NaN if v is
// Highway's Max and Min of NaN are as in hardware, on x86 the second operand: this uses comparisons instead.
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

template <class Tag>
HWY_INLINE hwy::HWY_NAMESPACE::VFromD<Tag> exp_or_nan(Tag d, hwy::HWY_NAMESPACE::VFromD<Tag> v) {
  namespace hn = hwy::HWY_NAMESPACE;
  return hn::IfThenElse(hn::IsNaN(v), v, hn::Exp(d, v));
}

template <class Tag>
HWY_INLINE hwy::HWY_NAMESPACE::VFromD<Tag> positive_part(Tag d, hwy::HWY_NAMESPACE::VFromD<Tag> v) {
  namespace hn = hwy::HWY_NAMESPACE;
  return hn::IfThenZeroElse(hn::Le(v, hn::Zero(d)), v);
}

template <class Tag>
HWY_INLINE hwy::HWY_NAMESPACE::VFromD<Tag> at_least(Tag d, float low, hwy::HWY_NAMESPACE::VFromD<Tag> v) {
  namespace hn = hwy::HWY_NAMESPACE;
  const auto limit = hn::Set(d, low);
  return hn::IfThenElse(hn::Lt(v, limit), limit, v);
}

template <class Tag>
HWY_INLINE hwy::HWY_NAMESPACE::VFromD<Tag> at_most(Tag d, float high, hwy::HWY_NAMESPACE::VFromD<Tag> v) {
  namespace hn = hwy::HWY_NAMESPACE;
  const auto limit = hn::Set(d, high);
  return hn::IfThenElse(hn::Gt(v, limit), limit, v);
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();
#endif
