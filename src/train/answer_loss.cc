#include "train/answer_loss.h"

#include <algorithm>
#include <cmath>

namespace braid::train {
namespace {

double logistic(double x) { return 1 / (1 + std::exp(-x)); }
// log(1 + e^x), without overflow.
double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }

}  // namespace

Slope PreferenceLoss::at(double d, double gap) const {
  switch (kind) {
    case PreferenceKind::dpo:
      return {softplus(-beta * d), -beta * logistic(-beta * d)};
    case PreferenceKind::ipo: {
      const double off = d - 1 / (2 * beta);
      return {off * off, 2 * off};
    }
    case PreferenceKind::rpo:
      break;
  }
  // p (log p - log s) + (1 - p) (log(1 - p) - log(1 - s)), where log s(x) = -softplus(-x), log(1 - s(x)) = -softplus(x)
  const double target = eta * gap, x = beta * d, p = logistic(target);
  const double loss = p * (softplus(-x) - softplus(-target)) + (1 - p) * (softplus(x) - softplus(target));
  return {loss, beta * (logistic(x) - p)};
}

Slope ratio_of(double log_ratio) {
  if (log_ratio <= kLogRatioMax) return {std::exp(log_ratio), std::exp(log_ratio)};
  const double most = std::exp(kLogRatioMax);
  return {most * (1 + log_ratio - kLogRatioMax), most};
}

PolicySlope policy_loss(double log_ratio, double advantage, const Clip& clip) {
  PolicySlope slope;
  if (advantage == 0) return slope;
  const Slope ratio = ratio_of(log_ratio);
  const double free = ratio.loss * advantage, held = std::clamp(ratio.loss, 1 - clip.low, 1 + clip.high) * advantage;
  slope.clipped = held < free;
  slope.loss = -std::min(free, held);
  slope.derivative = slope.clipped ? 0 : -ratio.derivative * advantage;
  if (clip.dual > 0 && advantage < 0 && slope.loss > -clip.dual * advantage) {
    slope.clipped = true;
    slope.loss = -clip.dual * advantage;
    slope.derivative = 0;
  }
  return slope;
}

Slope kl_estimate(double q) {
  if (q <= kLogRatioMax) return {std::expm1(q) - q, -std::expm1(q)};
  const Slope ratio = ratio_of(q);
  return {ratio.loss - 1 - q, 1 - ratio.derivative};
}

double advantage_of(Advantage kind, const data::Rating& rating) {
  constexpr double kEpsilon = 1e-6;  // of the deviation
  const double above = rating.reward - rating.mean, n = static_cast<double>(rating.answers);
  switch (kind) {
    case Advantage::mean:
      return above;
    case Advantage::leave_one_out:  // r - (sum of the others) / (n - 1) = (r - mean) n / (n - 1)
      return rating.answers > 1 ? above * n / (n - 1) : 0;
    case Advantage::std:
      break;
  }
  return rating.deviation > 0 ? above / (rating.deviation + kEpsilon) : 0;
}

}  // namespace braid::train
