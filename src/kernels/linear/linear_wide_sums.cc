// FP64 sums of F32 products, for results that are ranked: with sums in FP32 two experts at a near tie change places
// with the order of addition. One dot product at a time along k, so a result depends on its two rows alone. Meant for
// the few rows of a router: it decodes nothing, packs nothing and has half the lanes.
#include "kernels/linear/linear_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear/linear_wide_sums.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include "math/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

// y[i] = sum over k of x[k] w[i][k], for kRows rows of w, F32 or BF16, that share the conversion of x.
template <int kRows, class Num>
void dots(const float* x, const Num* const* w, int64_t depth, float* y) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> narrow;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::VFromD<decltype(d)> sums[kRows];
  for (auto& sum : sums) sum = hn::Zero(d);
  int64_t k = 0;
  for (; k + lanes <= depth; k += lanes) {
    const auto v = hn::PromoteTo(d, hn::LoadU(narrow, x + k));
    for (int i = 0; i < kRows; ++i) sums[i] = hn::MulAdd(v, hn::PromoteTo(d, load(narrow, w[i] + k)), sums[i]);
  }
  for (int i = 0; i < kRows; ++i) {
    double sum = hn::GetLane(hn::SumOfLanes(d, sums[i]));
    for (int64_t j = k; j < depth; ++j) sum += static_cast<double>(x[j]) * static_cast<double>(to_float(w[i][j]));
    y[i] = static_cast<float>(sum);
  }
}

template <class Num>
void all_rows(const LinearFwd& op, int64_t begin, int64_t end) {
  constexpr int kRows = 4;
  const int64_t depth = op.x.dim(1), rows = op.w.rows;
  const auto* w = op.w.codes.as<Num>();
  for (int64_t t = begin; t < end; ++t) {
    const float* x = op.x.as<float>(t);
    float* y = op.y.as<float>(t);
    int64_t n = 0;
    for (; n + kRows <= rows; n += kRows) {
      const Num* block[kRows];
      for (int i = 0; i < kRows; ++i) block[i] = w + (n + i) * depth;
      dots<kRows>(x, block, depth, y + n);
    }
    for (; n < rows; ++n) {
      const Num* row = w + n * depth;
      dots<1>(x, &row, depth, y + n);
    }
  }
}

void wide_sums_range(const LinearFwd& op, int64_t begin, int64_t end) {
  op.w.codes.dtype == DType::f32 ? all_rows<float>(op, begin, end) : all_rows<Bf16>(op, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {

HWY_EXPORT(wide_sums_range);

const char* linear_wide_sums_supports(const LinearFwd& op) {
  if (!op.wide_sums) return "FP32 sums";
  if (op.x.dtype != DType::f32 || op.y.dtype != DType::f32) return "not F32";
  const bool dense = op.w.codes.dtype == DType::f32 || op.w.codes.dtype == DType::bf16;
  if (!dense || op.w.scales || !op.w.codes.contiguous()) return "weight is neither F32 nor BF16";
  if (op.bias) return "bias";
  return op.x.rows_contiguous() && op.y.rows_contiguous() ? nullptr : "strided rows";
}

void linear_fwd_wide_sums(Ctx& ctx, const LinearFwd& op, std::span<std::byte>) {
  constexpr int64_t kGrain = 8;  // tokens: enough to pay for waking a thread
  sys::parallel_for(ctx.threads, op.x.dim(0), kGrain, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(wide_sums_range)(op, begin, end);
  });
}

}  // namespace braid
#endif
