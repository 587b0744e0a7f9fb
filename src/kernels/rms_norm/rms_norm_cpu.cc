// RMSNorm with Highway: one row at a time, two passes (sum of squares, then scale); memory-bound from L2 on. The gate
// is computed in both passes: recomputing exp beats a scratch row.
#include "kernels/rms_norm/rms_norm_rows.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rms_norm/rms_norm_cpu.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include "math/act-inl.h"
#include "math/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::VFromD<FloatTag>;

template <class X, class Z>
HWY_INLINE FloatVec gated(FloatTag d, const X* x, const Z* z, int64_t i, int64_t n) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const FloatVec v = n == lanes ? load(d, x + i) : load_n(d, x + i, n);
  if (!z) return v;
  const FloatVec gate = n == lanes ? load(d, z + i) : load_n(d, z + i, n);
  return hn::Mul(v, sigmoid_times(d, gate, gate));
}

// 1 / sqrt(mean(v^2) + eps) with FP64 sums: its error multiplies every channel. They cost 6 to 10% of the op in L2 (Zen
// 4, rms_norm_bench), tens of nanoseconds per row of 2,688.
template <class X, class Z>
float reciprocal_root(const X* x, const Z* z, int64_t size, float eps) {
  const FloatTag d;
  const hn::Repartition<double, FloatTag> wide;
  const hn::Half<FloatTag> half;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto low = hn::Zero(wide), high = low;
  for (int64_t i = 0; i < size; i += lanes) {
    const FloatVec v = gated(d, x, z, i, HWY_MIN(lanes, size - i));
    const auto a = hn::PromoteTo(wide, hn::LowerHalf(half, v)), b = hn::PromoteTo(wide, hn::UpperHalf(half, v));
    low = hn::MulAdd(a, a, low);
    high = hn::MulAdd(b, b, high);
  }
  const double sum = hn::GetLane(hn::SumOfLanes(wide, hn::Add(low, high)));
  return static_cast<float>(1 / std::sqrt(sum / static_cast<double>(size) + static_cast<double>(eps)));
}

// One group of `size` channels of one token.
template <class X, class Z, class Y>
float norm_group(const X* x, const Z* z, const float* w, Y* y, int64_t size, float eps, const float* given) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const float r = given ? *given : reciprocal_root(x, z, size, eps);
  const FloatVec scale = hn::Set(d, r);
  for (int64_t i = 0; i < size; i += lanes) {
    const int64_t n = HWY_MIN(lanes, size - i);
    const FloatVec v = hn::Mul(gated(d, x, z, i, n), scale);
    if (n == lanes) {
      store(hn::Mul(v, load(d, w + i)), d, y + i);
    } else {
      store_n(hn::Mul(v, load_n(d, w + i, n)), d, y + i, n);
    }
  }
  return r;
}

template <class X, class Z, class Y>
void norm_rows(const RmsNormFwd& op, int64_t begin, int64_t end) {
  const int64_t size = op.x.dim(1) / op.groups;
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t g = 0; g < op.groups; ++g) {
      const int64_t at = g * size;
      const Z* z = op.z ? op.z.as<Z>(t) + at : nullptr;
      const float r = norm_group(op.x.as<X>(t) + at, z, op.w.as<float>() + at, op.y.as<Y>(t) + at, size, op.eps,
                                 op.scale ? op.scale.as<float>(t) + g : nullptr);
      if (op.rstd) op.rstd.as<float>(t)[g] = r;
    }
  }
}

template <class X, class Z>
void dispatch_y(const RmsNormFwd& op, int64_t begin, int64_t end) {
  op.y.dtype == DType::bf16 ? norm_rows<X, Z, Bf16>(op, begin, end) : norm_rows<X, Z, float>(op, begin, end);
}
template <class X>
void dispatch_z(const RmsNormFwd& op, int64_t begin, int64_t end) {
  op.z&& op.z.dtype == DType::bf16 ? dispatch_y<X, Bf16>(op, begin, end) : dispatch_y<X, float>(op, begin, end);
}
void norm_range(const RmsNormFwd& op, int64_t begin, int64_t end) {
  op.x.dtype == DType::bf16 ? dispatch_z<Bf16>(op, begin, end) : dispatch_z<float>(op, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {

HWY_EXPORT(norm_range);

void rms_norm_fwd_hwy(Ctx& ctx, const RmsNormFwd& op, std::span<std::byte>) {
  constexpr int64_t kGrain = 4;  // tokens: enough to pay for waking a thread
  sys::parallel_for(ctx.threads, op.x.dim(0), kGrain, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(norm_range)(op, begin, end);
  });
}

}  // namespace braid
#endif
