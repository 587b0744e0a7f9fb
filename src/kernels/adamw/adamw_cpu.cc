// AdamW and the sum of squares, a vector at a time. Elements are independent in a step, so threads take any parts.
#include <algorithm>

#include "kernels/adamw/adamw_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/adamw/adamw_cpu.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include "math/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::VFromD<FloatTag>;

struct Element {
  FloatVec w, m, v;
};

HWY_INLINE Element step(FloatTag d, const AdamwScalars& s, FloatVec g, Element e) {
  g = hn::Mul(g, hn::Set(d, s.grad_scale));
  e.m = hn::MulAdd(hn::Set(d, s.one_less_beta1), hn::Sub(g, e.m), e.m);
  e.v = hn::MulAdd(hn::Mul(hn::Set(d, s.one_less_beta2), g), g, hn::Mul(e.v, hn::Set(d, s.beta2)));
  const FloatVec divisor = hn::Add(hn::Div(hn::Sqrt(e.v), hn::Set(d, s.root)), hn::Set(d, s.eps));
  const FloatVec change = hn::Div(hn::Mul(hn::Set(d, s.step_size), e.m), divisor);
  e.w = hn::Sub(hn::Mul(e.w, hn::Set(d, s.keep)), change);
  return e;
}

// Elements [begin, end).
void step_part(const AdamwStep& op, const AdamwScalars& s, int64_t begin, int64_t end) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const float* g = op.g.as<float>();
  float *w = op.w.as<float>(), *m = op.m.as<float>(), *v = op.v.as<float>();
  Bf16* working = op.working ? op.working.as<Bf16>() : nullptr;
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) {
    const Element e = step(d, s, load(d, g + i), {load(d, w + i), load(d, m + i), load(d, v + i)});
    store(e.w, d, w + i);
    store(e.m, d, m + i);
    store(e.v, d, v + i);
    if (working) store(e.w, d, working + i);
  }
  if (i == end) return;
  const int64_t n = end - i;
  const Element e = step(d, s, load_n(d, g + i, n), {load_n(d, w + i, n), load_n(d, m + i, n), load_n(d, v + i, n)});
  store_n(e.w, d, w + i, n);
  store_n(e.m, d, m + i, n);
  store_n(e.v, d, v + i, n);
  if (working) store_n(e.w, d, working + i, n);
}

double squares_part(const float* g, int64_t n) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const auto v0 = hn::PromoteTo(d, hn::LoadU(df, g + i)), v1 = hn::PromoteTo(d, hn::LoadU(df, g + i + lanes));
    const auto v2 = hn::PromoteTo(d, hn::LoadU(df, g + i + 2 * lanes)),
               v3 = hn::PromoteTo(d, hn::LoadU(df, g + i + 3 * lanes));
    sum0 = hn::MulAdd(v0, v0, sum0);
    sum1 = hn::MulAdd(v1, v1, sum1);
    sum2 = hn::MulAdd(v2, v2, sum2);
    sum3 = hn::MulAdd(v3, v3, sum3);
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
  for (; i < n; ++i) sum += static_cast<double>(g[i]) * static_cast<double>(g[i]);
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {
namespace {

HWY_EXPORT(step_part);
HWY_EXPORT(squares_part);

}  // namespace

void adamw_step_hwy(Ctx& ctx, const AdamwStep& op, std::span<std::byte>) {
  constexpr int64_t kGrain = 4096;  // elements: whole pages of every operand
  const AdamwScalars scalars = adamw_scalars(op);
  sys::parallel_for(ctx.threads, op.w.count(), kGrain, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(step_part)(op, scalars, begin, end);
  });
}

double sum_of_squares(Ctx& ctx, const View& g) {
  CHECK(g.dtype == DType::f32 && g.contiguous(), "sum_of_squares of {} {}", name_of(g.dtype), to_string(g.shape));
  // Few enough that their sums fit on the stack, and large enough to be worth a thread.
  constexpr int64_t kBlocksMax = 512, kBlock = 32768;
  const int64_t n = g.count(), block = std::max(kBlock, (n + kBlocksMax - 1) / kBlocksMax);
  const int64_t blocks = (n + block - 1) / block;
  double sums[kBlocksMax];
  const auto* values = reinterpret_cast<const float*>(g.data);
  sys::parallel_for(ctx.threads, blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b)
      sums[b] = HWY_DYNAMIC_DISPATCH(squares_part)(values + b * block, std::min(block, n - b * block));
  });
  double sum = 0;
  for (int64_t b = 0; b < blocks; ++b) sum += sums[b];
  return sum;
}

}  // namespace braid
#endif
