#include "engine/exit_rule.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sys/check.h"

namespace braid::engine {
namespace {

constexpr double kThresholds[] = {0, 1e-3, 0.03, 1e-3, 5};  // by Exit

std::vector<double> log_softmax(std::span<const float> logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float v : logits) sum += std::exp(v - most);
  const double lse = most + std::log(sum);
  std::vector<double> out(logits.size());
  std::transform(logits.begin(), logits.end(), out.begin(), [lse](float v) { return v - lse; });
  return out;
}

double entropy_of(std::span<const float> logits) {
  double sum = 0;
  for (const double l : log_softmax(logits)) sum -= std::exp(l) * l;
  return sum;
}

// |a - b| / |a|
double relative_distance(std::span<const float> a, std::span<const float> b) {
  double apart = 0, length = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    apart += d * d, length += static_cast<double>(a[i]) * static_cast<double>(a[i]);
  }
  return std::sqrt(apart / length);
}

}  // namespace

ExitRule::ExitRule(Exit kind, double threshold, std::span<const float> start)
    : kind_(kind), threshold_(threshold > 0 ? threshold : kThresholds[static_cast<size_t>(kind)]) {
  if (kind == Exit::latent) state_.assign(start.begin(), start.end());
}

double ExitRule::kl_from_last(std::span<const float> logits) {
  std::vector<double> now = log_softmax(logits);
  const std::vector<double> uniform(now.size(), -std::log(static_cast<double>(now.size())));
  const std::vector<double>& last = log_probs_.empty() ? uniform : log_probs_;
  double sum = 0;
  for (size_t i = 0; i < now.size(); ++i) sum += std::exp(last[i]) * (last[i] - now[i]);
  log_probs_ = std::move(now);
  return sum;
}

double ExitRule::change(std::span<const float> values) {
  switch (kind_) {
    case Exit::kl:
      return kl_from_last(values);
    case Exit::latent: {
      const double distance = relative_distance(values, state_);
      state_.assign(values.begin(), values.end());
      return distance;
    }
    case Exit::entropy: {
      const double last = std::exchange(entropy_, entropy_of(values));
      return std::abs(entropy_ - last);
    }
    default:
      CHECK(false, "no change of rule {}", static_cast<int>(kind_));
  }
}

bool ExitRule::enough(std::span<const float> values) {
  if (kind_ != Exit::argmax) return change(values) < threshold_;
  const int64_t likeliest = std::max_element(values.begin(), values.end()) - values.begin();
  stable_ = std::exchange(argmax_, likeliest) == likeliest ? stable_ + 1 : 0;
  return static_cast<double>(stable_) >= threshold_;
}

}  // namespace braid::engine
