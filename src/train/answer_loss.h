// The losses over log-probabilities of answers, as pure functions with their derivatives.
//
// Preferences, a pair at a time; d is the log-odds of the chosen answer over the rejected one, relative to the model at
// the start: d = [log p(chosen) - log p0(chosen)] - [log p(rejected) - log p0(rejected)], and s the logistic function.
//   dpo   -log s(beta d)                                      Rafailov et al. 2023, equation 7
//   ipo   (d - 1 / (2 beta))^2                                Azar et al. 2023
//   rpo   KL of Bernoulli s(eta gap) from Bernoulli s(beta d), where gap is that of the two ratings
//                                                             Nemotron-4 340B 2024, the target first
//
// Policies, a token at a time; r = exp(log p - log of the policy that sampled it), A the advantage of its answer.
//   -min(r A, clip(r, 1 - low, 1 + high) A), with dual > 0 and A < 0 at most -dual A
//                                                             Schulman et al. 2017, equation 7; Ye et al. 2020
//   k3 = exp(q) - q - 1, q = log p0 - log p: an estimate of the KL from the start (Schulman 2020, no bias, never < 0)
// Beyond kLogRatioMax either exponential goes on as its tangent: finite however unlikely a token was, and still
// pulling.
#pragma once
#include <cstdint>
#include <string_view>

#include "data/batch.h"

namespace braid::train {

struct Slope {
  double loss = 0, derivative = 0;
};

enum class PreferenceKind : uint8_t { dpo, ipo, rpo };
struct PreferenceLoss {
  PreferenceKind kind = PreferenceKind::dpo;
  double beta = 0.1, eta = 1;

  Slope at(double d, double gap) const;  // in d
};

struct Clip {
  double low = 0.2, high = 0.2, dual = 0;  // dual 0: none
};
constexpr double kLogRatioMax = 20;  // ratios above e^20 = 4.9e8
Slope ratio_of(double log_ratio);    // in log_ratio
struct PolicySlope : Slope {
  bool clipped = false;  // then the derivative is 0
};
// In log_ratio. 0 without an advantage, whatever the ratio is.
PolicySlope policy_loss(double log_ratio, double advantage, const Clip& clip);

Slope kl_estimate(double q);  // k3; in log p

// What an answer's reward is over those of its group.
enum class Advantage : uint8_t { leave_one_out, mean, std };
double advantage_of(Advantage kind, const data::Rating& rating);

}  // namespace braid::train
