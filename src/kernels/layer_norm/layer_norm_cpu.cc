// LayerNorm with Highway: one row at a time, three passes over a row that stays in L1.
#include "kernels/layer_norm/layer_norm_rows.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/layer_norm/layer_norm_cpu.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include <hwy/highway.h>

#include "math/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::VFromD<FloatTag>;

template <class Num>
HWY_INLINE FloatVec load_part(FloatTag d, const Num* p, int64_t n) {
  return n == static_cast<int64_t>(hn::Lanes(d)) ? load(d, p) : load_n(d, p, n);
}

template <class X, class Y>
void norm_row(const LayerNormFwd& op, int64_t t) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t width = op.x.dim(1);
  const X* x = op.x.as<X>(t);
  FloatVec sums = hn::Zero(d), squares = hn::Zero(d);
  for (int64_t i = 0; i < width; i += lanes) sums = hn::Add(sums, load_part(d, x + i, HWY_MIN(lanes, width - i)));
  const float mean = hn::GetLane(hn::SumOfLanes(d, sums)) / static_cast<float>(width);
  const FloatVec centre = hn::Set(d, mean);
  for (int64_t i = 0; i < width; i += lanes) {
    const int64_t n = HWY_MIN(lanes, width - i);
    FloatVec v = hn::Sub(load_part(d, x + i, n), centre);
    if (n < lanes) v = hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(n)), v);
    squares = hn::MulAdd(v, v, squares);
  }
  const float variance = hn::GetLane(hn::SumOfLanes(d, squares)) / static_cast<float>(width);
  const float r = 1.0f / std::sqrt(variance + op.eps);
  const FloatVec scale = hn::Set(d, r);
  const float* w = op.w.as<float>();
  const float* bias = op.bias ? op.bias.as<float>() : nullptr;
  for (int64_t i = 0; i < width; i += lanes) {
    const int64_t n = HWY_MIN(lanes, width - i);
    const FloatVec v = hn::Mul(hn::Sub(load_part(d, x + i, n), centre), scale);
    const FloatVec y = hn::MulAdd(v, load_part(d, w + i, n), bias ? load_part(d, bias + i, n) : hn::Zero(d));
    if (n == lanes) {
      store(y, d, op.y.as<Y>(t) + i);
    } else {
      store_n(y, d, op.y.as<Y>(t) + i, n);
    }
  }
  if (op.mean) op.mean.as<float>(t)[0] = mean;
  if (op.rstd) op.rstd.as<float>(t)[0] = r;
}

template <class X>
void norm_dispatch(const LayerNormFwd& op, int64_t t) {
  op.y.dtype == DType::bf16 ? norm_row<X, Bf16>(op, t) : norm_row<X, float>(op, t);
}
void norm_range(const LayerNormFwd& op, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    op.x.dtype == DType::bf16 ? norm_dispatch<Bf16>(op, t) : norm_dispatch<float>(op, t);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {

HWY_EXPORT(norm_range);

void layer_norm_fwd_hwy(Ctx& ctx, const LayerNormFwd& op, std::span<std::byte>) {
  constexpr int64_t kGrain = 4;  // tokens: enough to pay for waking a thread
  sys::parallel_for(ctx.threads, op.x.dim(0), kGrain, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(norm_range)(op, begin, end);
  });
}

}  // namespace braid
#endif
