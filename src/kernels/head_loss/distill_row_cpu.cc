// One token of distill_loss with Highway, in FP32: maxima and sums of both rows, then divergence and gradient in one
// pass over them. Padding is a large negative number, not -inf: its probability is 0 and its log finite, so that their
// product is 0. Sums use four vectors, added in a fixed order.
#include "kernels/head_loss/distill_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/head_loss/distill_row_cpu.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "kernels/head_loss/distill_loss.h"
#include "math/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {
namespace {

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::VFromD<FloatTag>;

constexpr int kSums = 4;
constexpr float kNothing = -1e30f;

// e^v for v <= 0; NaN stays NaN.
HWY_INLINE FloatVec exp_of(FloatTag d, FloatVec v) { return hn::IfThenElse(hn::IsNaN(v), v, hn::Exp(d, v)); }

// A row of logits as probabilities: log p_v = (logit_v - top) * inverse - log_sum.
struct Softmax {
  float top = 0, inverse = 1, log_sum = 0;

  HWY_INLINE FloatVec log_of(FloatTag d, FloatVec logit) const {
    return hn::Sub(hn::Mul(hn::Sub(logit, hn::Set(d, top)), hn::Set(d, inverse)), hn::Set(d, log_sum));
  }
  float log_of(float logit) const { return (logit - top) * inverse - log_sum; }
};

float sum_of(FloatTag d, const FloatVec (&sums)[kSums]) {
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]))));
}

float largest(const float* row, int64_t padded) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  FloatVec top[kSums];
  for (FloatVec& t : top) t = hn::Set(d, kNothing);
  for (int64_t v = 0; v < padded; v += kSums * lanes) {
    for (int i = 0; i < kSums; ++i) top[i] = hn::Max(load(d, row + v + i * lanes), top[i]);
  }
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(top[0], top[1]), hn::Max(top[2], top[3]))));
}

// The sum of e^((logit - top) inverse).
float exponentials(const float* row, int64_t padded, float top, float inverse) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Softmax shift{.top = top, .inverse = inverse};
  FloatVec sums[kSums];
  for (FloatVec& s : sums) s = hn::Zero(d);
  for (int64_t v = 0; v < padded; v += kSums * lanes) {
    for (int i = 0; i < kSums; ++i)
      sums[i] = hn::Add(sums[i], exp_of(d, shift.log_of(d, load(d, row + v + i * lanes))));
  }
  return sum_of(d, sums);
}

Softmax softmax_of(const float* row, int64_t padded, float top, float inverse) {
  return {.top = top, .inverse = inverse, .log_sum = std::log(exponentials(row, padded, top, inverse))};
}

float divergence(const DistillRow& r, const Softmax& q, const Softmax& p) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  FloatVec sums[kSums];
  for (FloatVec& s : sums) s = hn::Zero(d);
  for (int64_t v = 0; v < r.padded; v += kSums * lanes) {
    for (int i = 0; i < kSums; ++i) {
      const int64_t at = v + i * lanes;
      const FloatVec log_p = p.log_of(d, load(d, r.teacher + at)), log_q = q.log_of(d, load(d, r.logits + at));
      sums[i] = hn::MulAdd(exp_of(d, log_p), hn::Sub(log_p, log_q), sums[i]);
    }
  }
  return sum_of(d, sums);
}

// dlogits = on_q (q - p) + on_one softmax, in place; without a teacher's row without p. Against entries q is the
// distribution of the tail alone.
struct Factors {
  float on_q = 0, on_one = 0;
};
template <class Num>
void gradients(const DistillRow& r, const Softmax& q, const Softmax& p, const Softmax& one, const Factors& f,
               Num* out) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t v = 0; v < r.padded; v += lanes) {
    const FloatVec logit = load(d, r.logits + v);
    FloatVec g = exp_of(d, q.log_of(d, logit));
    if (r.teacher) g = hn::Sub(g, exp_of(d, p.log_of(d, load(d, r.teacher + v))));
    g = hn::Mul(g, hn::Set(d, f.on_q));
    if (f.on_one != 0) g = hn::MulAdd(hn::Set(d, f.on_one), exp_of(d, one.log_of(d, logit)), g);
    store(g, d, out + v);
  }
}

void put(const DistillRow& r, bool bf16, int64_t v, float value) {
  if (!bf16) {
    r.logits[v] = value;
    return;
  }
  const Bf16 rounded = to_bf16(value);
  std::memcpy(reinterpret_cast<std::byte*>(r.logits) + v * 2, &rounded, sizeof rounded);
}

void all_gradients(const DistillRow& r, bool bf16, const Softmax& q, const Softmax& p, const Softmax& one,
                   const Factors& f) {
  if (bf16) {
    gradients(r, q, p, one, f, reinterpret_cast<Bf16*>(r.logits));
  } else {
    gradients(r, q, p, one, f, r.logits);
  }
}

// Against a teacher's logits.
DistillTokenLoss whole_row(const DistillRow& r, bool gradient, bool bf16) {
  for (int64_t v = r.vocab; v < r.padded; ++v) r.logits[v] = r.teacher[v] = kNothing;
  const float top = largest(r.logits, r.padded), logit = r.logits[r.target];
  const Softmax q = softmax_of(r.logits, r.padded, top, 1 / r.temperature),
                p = softmax_of(r.teacher, r.padded, largest(r.teacher, r.padded), 1 / r.temperature),
                one = softmax_of(r.logits, r.padded, top, 1);
  const DistillTokenLoss loss{.kl = divergence(r, q, p), .ce = -one.log_of(logit)};
  if (!gradient) return loss;
  const float kl = r.weight * r.kl_weight * r.temperature, ce = r.weight * r.ce_weight;
  float at_target = kl * (std::exp(q.log_of(logit)) - std::exp(p.log_of(r.teacher[r.target])));
  if (ce != 0) at_target += ce * (std::exp(one.log_of(logit)) - 1);
  all_gradients(r, bf16, q, p, one, {.on_q = kl, .on_one = ce});
  if (ce != 0) put(r, bf16, r.target, at_target);
  return loss;
}

// Against entries and a tail. The student's tail is summed without the entries, which are set aside: what is left of 1
// would cancel. It has its own maximum, as it may be smaller than any FP32 number beside the entries: with log q_tail
// and the distribution within the tail, r_v = q_v / q_tail, its gradient is on_q (mass q_tail - left) r_v, all finite.
DistillTokenLoss entries_row(const DistillRow& r, bool gradient, bool bf16) {
  for (int64_t v = r.vocab; v < r.padded; ++v) r.logits[v] = kNothing;
  const float top = largest(r.logits, r.padded), inverse = 1 / r.temperature, logit = r.logits[r.target];
  const Softmax one = softmax_of(r.logits, r.padded, top, 1);
  float aside[kDistillEntries];
  float named = 0, left = 1;
  for (int64_t k = 0; k < r.entries; ++k) {
    if (r.ids[k] < 0) continue;
    aside[k] = r.logits[r.ids[k]];
    r.logits[r.ids[k]] = kNothing;
    named += std::exp((aside[k] - top) * inverse);
    left -= std::exp(r.logprobs[k]);
  }
  const float rest_top = largest(r.logits, r.padded);
  const bool others = rest_top > kNothing, tail = left > 0 && others;
  const Softmax rest = others ? softmax_of(r.logits, r.padded, rest_top, inverse) : Softmax();
  const float log_others = (rest_top - top) * inverse + rest.log_sum;
  const Softmax q{.top = top, .inverse = inverse, .log_sum = std::log(named + (others ? std::exp(log_others) : 0))};
  DistillTokenLoss loss{.ce = -one.log_of(logit)};
  if (tail) loss.kl = left * (std::log(left) - (log_others - q.log_sum));
  for (int64_t k = 0; k < r.entries; ++k) {
    if (r.ids[k] < 0) continue;
    loss.kl += std::exp(r.logprobs[k]) * (r.logprobs[k] - q.log_of(aside[k]));
    r.logits[r.ids[k]] = aside[k];
  }
  if (!gradient) return loss;
  const float kl = r.weight * r.kl_weight * r.temperature, ce = r.weight * r.ce_weight;
  // Of the probabilities that the teacher gives entries and tail; 1 but for rounding, or an empty tail.
  const float mass = tail ? 1 : 1 - left;
  const float on_rest = others ? mass * std::exp(log_others - q.log_sum) - (tail ? left : 0) : 0;
  all_gradients(r, bf16, rest, {}, one, {.on_q = kl * on_rest, .on_one = ce});
  const auto put_at = [&](int64_t v, float raw, float probability, bool is_named) {
    float g = kl * (is_named ? mass * std::exp(q.log_of(raw)) - probability : on_rest * std::exp(rest.log_of(raw)));
    if (ce != 0) g += ce * (std::exp(one.log_of(raw)) - (v == r.target ? 1.0f : 0.0f));
    put(r, bf16, v, g);
  };
  if (ce != 0) put_at(r.target, logit, 0, false);
  for (int64_t k = 0; k < r.entries; ++k) {
    if (r.ids[k] >= 0) put_at(r.ids[k], aside[k], std::exp(r.logprobs[k]), true);
  }
  return loss;
}

}  // namespace

void distill_one(const DistillRow& r, bool gradient, bool bf16, DistillTokenLoss& result) {
  result = {};
  if (r.target >= 0) {
    result =
        r.teacher ? whole_row(r, gradient && r.weight != 0, bf16) : entries_row(r, gradient && r.weight != 0, bf16);
  }
  if (gradient && (r.target < 0 || r.weight == 0))
    std::memset(static_cast<void*>(r.logits), 0, static_cast<size_t>(r.padded) * sizeof(float));
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {

HWY_EXPORT(distill_one);

DistillTokenLoss distill_row(const DistillRow& row, bool gradient, bool bf16) {
  DistillTokenLoss result;
  HWY_DYNAMIC_DISPATCH(distill_one)(row, gradient, bf16, result);
  return result;
}

}  // namespace braid
#endif
