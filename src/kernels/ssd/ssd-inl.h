// Shared by SsdFwd and SsdStep, once per target: the step size from its raw value. Include it like math/vec-inl.h,
// after hwy/contrib/math/math-inl.h.
#if defined(BRAID_KERNELS_SSD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BRAID_KERNELS_SSD_INL_H_
#undef BRAID_KERNELS_SSD_INL_H_
#else
#define BRAID_KERNELS_SSD_INL_H_
#endif

#include "math/act-inl.h"
#include "math/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::VFromD<FloatTag>;

// max(v, 0) + log(1 + exp(-|v|)): no overflow at either end, NaN where v is.
HWY_INLINE FloatVec softplus(FloatTag d, FloatVec v) {
  const FloatVec tail = hn::Log1p(d, hn::Exp(d, hn::Neg(hn::Abs(v))));
  return hn::Add(positive_part(d, v), tail);
}

// Step sizes of one head, in place, from dt + dt_bias. `values` has room for whole vectors.
template <class Op>
HWY_INLINE void finish_steps(const Op& op, float* values, int64_t count) {
  const FloatTag d;
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(hn::Lanes(d))) {
    const FloatVec step = at_least(d, op.dt_min, softplus(d, hn::LoadU(d, values + i)));
    hn::StoreU(at_most(d, op.dt_max, step), d, values + i);
  }
}

// dt + dt_bias of one head for `count` tokens from row `first` on.
template <class Op>
HWY_INLINE void load_raw_steps(const Op& op, int64_t first, int64_t count, int64_t head, float* values) {
  const float bias = op.dt_bias.template as<float>()[head];
  const int64_t at = head * op.dt.stride(1);
  for (int64_t i = 0; i < count; ++i) {
    values[i] = bias + (op.dt.dtype == DType::bf16 ? to_float(op.dt.template as<Bf16>(first + i)[at])
                                                   : op.dt.template as<float>(first + i)[at]);
  }
}

// The step sizes of those tokens.
template <class Op>
HWY_INLINE void load_steps(const Op& op, int64_t first, int64_t count, int64_t head, float* values) {
  load_raw_steps(op, first, count, head, values);
  finish_steps(op, values, count);
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();
#endif
