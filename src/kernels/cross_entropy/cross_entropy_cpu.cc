// Cross-entropy with Highway, in FP32. A row of logits is read twice, for its maximum and for the sum of exponentials:
// the 512 KiB of a vocabulary of 131072 stay in L2 between the two. Sums are four vectors, added in one order.
#include <algorithm>
#include <cmath>

#include "kernels/cross_entropy/cross_entropy_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cross_entropy/cross_entropy_cpu.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include <hwy/highway.h>

#include "math/vec-inl.h"

#include "math/act-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::VFromD<FloatTag>;

constexpr int64_t kSums = 4;  // enough that no sum waits for the previous one

float largest(const float* row, int64_t vocab) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const FloatVec lowest = hn::Set(d, -INFINITY);
  FloatVec top[kSums] = {lowest, lowest, lowest, lowest};
  int64_t v = 0;
  for (; v + kSums * lanes <= vocab; v += kSums * lanes) {
    for (int64_t i = 0; i < kSums; ++i) top[i] = hn::Max(load(d, row + v + i * lanes), top[i]);
  }
  float rest = -INFINITY;
  for (; v < vocab; ++v) rest = HWY_MAX(rest, row[v]);
  const FloatVec all = hn::Max(hn::Max(top[0], top[1]), hn::Max(top[2], top[3]));
  return HWY_MAX(rest, hn::GetLane(hn::MaxOfLanes(d, all)));
}

float sum_of_exponentials(const float* row, int64_t vocab, float top) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const FloatVec shift = hn::Set(d, top);
  FloatVec sum[kSums] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  int64_t v = 0;
  for (; v + kSums * lanes <= vocab; v += kSums * lanes) {
    for (int64_t i = 0; i < kSums; ++i) {
      sum[i] = hn::Add(sum[i], exp_or_nan(d, hn::Sub(load(d, row + v + i * lanes), shift)));
    }
  }
  for (; v < vocab; v += lanes) {
    const int64_t n = HWY_MIN(lanes, vocab - v);
    const FloatVec e = exp_or_nan(d, hn::Sub(load_n(d, row + v, n), shift));
    sum[0] = hn::Add(sum[0], hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(n)), e));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3]))));
}

void forward_rows(const CrossEntropyFwd& op, int64_t begin, int64_t end) {
  const int64_t vocab = op.logits.dim(1);
  for (int64_t t = begin; t < end; ++t) {
    const float* row = op.logits.as<float>(t);
    const float top = largest(row, vocab), log_sum = std::log(sum_of_exponentials(row, vocab, top));
    const int32_t target = *op.targets.as<int32_t>(t);
    // Not lse - logit: a large maximum would cancel the digits of the difference.
    *op.loss.as<float>(t) = target < 0 ? 0 : (target < vocab ? top - row[target] : top) + log_sum;
    if (op.lse) *op.lse.as<float>(t) = top + log_sum;
  }
}

void backward_rows(const CrossEntropyBwd& op, int64_t begin, int64_t end) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t vocab = op.logits.dim(1);
  for (int64_t t = begin; t < end; ++t) {
    const float* row = op.logits.as<float>(t);
    float* dlogits = op.dlogits.as<float>(t);
    const int32_t target = *op.targets.as<int32_t>(t);
    if (target < 0) {
      std::fill_n(dlogits, vocab, 0.0f);
      continue;
    }
    const float upstream = *op.dloss.as<float>(t), lse = *op.lse.as<float>(t);
    const FloatVec shift = hn::Set(d, lse), scale = hn::Set(d, upstream);
    int64_t v = 0;
    for (; v + lanes <= vocab; v += lanes) {
      store(hn::Mul(scale, exp_or_nan(d, hn::Sub(load(d, row + v), shift))), d, dlogits + v);
    }
    if (v < vocab) {
      const FloatVec e = exp_or_nan(d, hn::Sub(load_n(d, row + v, vocab - v), shift));
      store_n(hn::Mul(scale, e), d, dlogits + v, vocab - v);
    }
    if (target < vocab) dlogits[target] -= upstream;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {

HWY_EXPORT(forward_rows);
HWY_EXPORT(backward_rows);

void cross_entropy_fwd_hwy(Ctx& ctx, const CrossEntropyFwd& op, std::span<std::byte>) {
  sys::parallel_for(sys::team_for(ctx.threads, op.flops()), op.logits.dim(0), 1, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(forward_rows)(op, begin, end);
  });
}

void cross_entropy_bwd_hwy(Ctx& ctx, const CrossEntropyBwd& op, std::span<std::byte>) {
  sys::parallel_for(sys::team_for(ctx.threads, op.flops()), op.logits.dim(0), 1, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(backward_rows)(op, begin, end);
  });
}

}  // namespace braid
#endif
