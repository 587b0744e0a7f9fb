// One token of head_loss with Highway, in FP32: the maximum, then exponentials in place with their sum, then the
// gradient over them. A row of 50257 logits stays in L2 in between. Sums use four vectors, added in a fixed order.
#include <cmath>
#include <cstring>

#include "kernels/head_loss/head_loss_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/head_loss/head_loss_cpu.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include <hwy/highway.h>

#include "math/vec-inl.h"

#include "math/act-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {
namespace {

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::VFromD<FloatTag>;

constexpr int kSums = 4;  // enough to hide the latency of an addition

float largest(const float* row, int64_t padded) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  FloatVec top[kSums];
  for (FloatVec& t : top) t = hn::Set(d, -INFINITY);
  for (int64_t v = 0; v < padded; v += kSums * lanes) {
    for (int i = 0; i < kSums; ++i) top[i] = hn::Max(load(d, row + v + i * lanes), top[i]);
  }
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(top[0], top[1]), hn::Max(top[2], top[3]))));
}

float exponentials(float* row, int64_t padded, float top) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const FloatVec shift = hn::Set(d, top);
  FloatVec sum[kSums];
  for (FloatVec& s : sum) s = hn::Zero(d);
  for (int64_t v = 0; v < padded; v += kSums * lanes) {
    for (int i = 0; i < kSums; ++i) {
      const FloatVec e = exp_or_nan(d, hn::Sub(load(d, row + v + i * lanes), shift));
      sum[i] = hn::Add(sum[i], e);
      store(e, d, row + v + i * lanes);
    }
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3]))));
}

// In place: writes never run ahead of reads.
template <class Num>
void scale_row(const float* row, int64_t padded, float factor, Num* out) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const FloatVec f = hn::Set(d, factor);
  for (int64_t v = 0; v < padded; v += lanes) store(hn::Mul(f, load(d, row + v)), d, out + v);
}

}  // namespace

void row_loss(const LogitRow& r, bool gradient, bool bf16, TokenLoss& result) {
  for (int64_t v = r.vocab; v < r.padded; ++v) r.logits[v] = -INFINITY;
  const float top = largest(r.logits, r.padded);
  // Not lse - logit: a large maximum would cancel the digits of the difference.
  const float below = r.target >= 0 ? top - r.logits[r.target] : 0;
  const float sum = exponentials(r.logits, r.padded, top), log_sum = std::log(sum);
  result.lse = top + log_sum;
  result.loss = r.target < 0 ? 0 : below + log_sum;
  if (!gradient) return;
  if (r.target < 0 || r.weight == 0) {
    std::memset(static_cast<void*>(r.logits), 0, static_cast<size_t>(r.padded) * sizeof(float));
    return;
  }
  const float factor = r.weight * (1 + 2 * r.z * result.lse) / sum;
  const float at_target = r.logits[r.target] * factor - r.weight;
  if (bf16) {
    const Bf16 rounded = to_bf16(at_target);
    scale_row(r.logits, r.padded, factor, reinterpret_cast<Bf16*>(r.logits));
    std::memcpy(reinterpret_cast<std::byte*>(r.logits) + r.target * 2, &rounded, sizeof rounded);
  } else {
    scale_row(r.logits, r.padded, factor, r.logits);
    r.logits[r.target] = at_target;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {

HWY_EXPORT(row_loss);

TokenLoss head_loss_row(const LogitRow& row, bool gradient, bool bf16) {
  TokenLoss result;
  HWY_DYNAMIC_DISPATCH(row_loss)(row, gradient, bf16, result);
  return result;
}

}  // namespace braid
#endif
