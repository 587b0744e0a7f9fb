// Products of two rows, summed, with Highway.
#include "kernels/row_dots/row_dots_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/row_dots/row_dots_cpu.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include <hwy/highway.h>

#include "math/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

void dot_range(const RowDots& op, int64_t begin, int64_t end) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t width = op.a.dim(1);
  const float* w = op.w ? op.w.as<float>() : nullptr;
  for (int64_t t = begin; t < end; ++t) {
    const float *a = op.a.as<float>(t), *b = op.b.as<float>(t);
    auto sum = hn::Zero(d);
    int64_t i = 0;
    for (; i + lanes <= width; i += lanes) {
      const auto scaled = w ? hn::Mul(load(d, b + i), load(d, w + i)) : load(d, b + i);
      sum = hn::MulAdd(load(d, a + i), scaled, sum);
    }
    if (i < width) {
      const auto rest = load_n(d, b + i, width - i);
      sum = hn::MulAdd(load_n(d, a + i, width - i), w ? hn::Mul(rest, load_n(d, w + i, width - i)) : rest, sum);
    }
    op.y.as<float>()[t] = hn::GetLane(hn::SumOfLanes(d, sum));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {

HWY_EXPORT(dot_range);

void row_dots_hwy(Ctx& ctx, const RowDots& op, std::span<std::byte>) {
  constexpr int64_t kGrain = 16;  // tokens, as in add_fwd
  sys::parallel_for(ctx.threads, op.a.dim(0), kGrain, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(dot_range)(op, begin, end);
  });
}

}  // namespace braid
#endif
