// Values by hand where they are known, and every derivative against central differences.
#include "train/answer_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace braid::train {
namespace {

void expect_derivative(const std::function<Slope(double)>& f, double x, double bound = 1e-8) {
  constexpr double kStep = 1e-5;
  const double wanted = (f(x + kStep).loss - f(x - kStep).loss) / (2 * kStep);
  EXPECT_NEAR(f(x).derivative, wanted, bound * std::max(1.0, std::fabs(wanted))) << x;
}

TEST(AnswerLoss, PreferencesStartWhereTheyShould) {
  const PreferenceLoss dpo{.kind = PreferenceKind::dpo, .beta = 0.3}, ipo{.kind = PreferenceKind::ipo, .beta = 0.25},
      rpo{.kind = PreferenceKind::rpo, .beta = 0.5, .eta = 2};
  EXPECT_EQ(dpo.at(0, 0).loss, std::log(2.0));
  EXPECT_EQ(dpo.at(0, 0).derivative, -0.15);
  EXPECT_EQ(ipo.at(0, 0).loss, 4);
  EXPECT_EQ(ipo.at(2, 0).loss, 0);
  EXPECT_NEAR(rpo.at(12, 3).loss, 0, 1e-15);  // beta d = eta gap
  EXPECT_NEAR(rpo.at(12, 3).derivative, 0, 1e-15);
  // p = s(2) = 0.8807970780, q = 1/2: p log 2p + (1 - p) log 2(1 - p)
  EXPECT_NEAR(rpo.at(0, 1).loss, 0.3278133254, 1e-9);
  EXPECT_NEAR(dpo.at(1e4, 0).loss, 0, 1e-300);
  EXPECT_NEAR(dpo.at(-1e4, 0).loss, 3e3, 1e-9);  // and not infinite
}

TEST(AnswerLoss, EveryDerivativeIsThatOfItsLoss) {
  for (const PreferenceKind kind : {PreferenceKind::dpo, PreferenceKind::ipo, PreferenceKind::rpo}) {
    const PreferenceLoss loss{.kind = kind, .beta = 0.7, .eta = 1.5};
    for (const double d : {-9.0, -1.3, 0.0, 0.4, 7.0}) {
      for (const double gap : {-1.0, 0.0, 2.5}) expect_derivative([&](double x) { return loss.at(x, gap); }, d);
    }
  }
  for (const double dual : {0.0, 3.0}) {
    const Clip clip{.low = 0.2, .high = 0.28, .dual = dual};
    for (const double advantage : {-1.5, 0.0, 0.7}) {
      for (const double x : {-2.0, -0.4, -0.1, 0.0, 0.2, 0.3, 1.0, 1.3, 900.0})
        expect_derivative([&](double r) { return policy_loss(r, advantage, clip); }, x);
    }
  }
  for (const double log_p : {-3.0, -0.5, 0.0, 1.0})
    expect_derivative([](double p) { return kl_estimate(0.2 - p); }, log_p);
}

TEST(AnswerLoss, RatiosAreClippedOnTheSideThatTheAdvantagePushes) {
  const Clip clip{.low = 0.2, .high = 0.28};
  const auto at = [&](double ratio, double advantage) { return policy_loss(std::log(ratio), advantage, clip); };
  EXPECT_TRUE(at(1.3, 2).clipped);
  EXPECT_NEAR(at(1.3, 2).loss, -2.56, 1e-12);
  EXPECT_FALSE(at(1.27, 2).clipped);
  EXPECT_FALSE(at(0.5, 2).clipped);
  EXPECT_TRUE(at(0.7, -2).clipped);
  EXPECT_NEAR(at(0.7, -2).loss, 1.6, 1e-12);
  EXPECT_FALSE(at(9, -2).clipped);
  const Clip dual{.low = 0.2, .high = 0.28, .dual = 3};
  EXPECT_EQ(policy_loss(std::log(9), -2, dual).loss, 6);
  EXPECT_TRUE(policy_loss(std::log(9), -2, dual).clipped);
  EXPECT_FALSE(policy_loss(std::log(2), -2, dual).clipped);
  EXPECT_EQ(kl_estimate(0).loss, 0);
}

// Of a token that the policy finds all but impossible, or that the start does.
TEST(AnswerLoss, NoRatioIsInfinite) {
  for (const double log_ratio : {30.0, 800.0, 1e9}) {
    for (const double advantage : {-2.0, 0.0, 2.0}) {
      const PolicySlope slope = policy_loss(log_ratio, advantage, {.low = 0.2, .high = 0.28});
      EXPECT_TRUE(std::isfinite(slope.loss) && std::isfinite(slope.derivative)) << log_ratio << " " << advantage;
      EXPECT_EQ(slope.loss == 0, advantage == 0);
      EXPECT_NEAR(slope.derivative, advantage < 0 ? 2 * std::exp(kLogRatioMax) : 0, 1);
    }
    EXPECT_TRUE(std::isfinite(kl_estimate(log_ratio).loss)) << log_ratio;
    EXPECT_LT(kl_estimate(log_ratio).derivative, 0);
  }
  EXPECT_EQ(policy_loss(std::numeric_limits<double>::infinity(), 0, {}).loss, 0);
  for (const double x : {kLogRatioMax - 1e-9, kLogRatioMax + 1e-9}) {
    EXPECT_NEAR(ratio_of(x).loss / std::exp(x), 1, 1e-12);
    EXPECT_NEAR(kl_estimate(x).loss / (std::expm1(x) - x), 1, 1e-12);
  }
}

TEST(AnswerLoss, AdvantagesAreRelativeToTheGroup) {
  // Rewards 1, 2, 6: mean 3, deviation of the sample sqrt(14 / 2).
  const data::Rating six{.reward = 6, .mean = 3, .deviation = std::sqrt(7.0), .answers = 3};
  EXPECT_EQ(advantage_of(Advantage::mean, six), 3);
  EXPECT_EQ(advantage_of(Advantage::leave_one_out, six), 6 - 1.5);
  EXPECT_NEAR(advantage_of(Advantage::std, six), 3 / std::sqrt(7.0), 1e-6);
  const data::Rating even{.reward = 2, .mean = 2, .answers = 4};
  EXPECT_EQ(advantage_of(Advantage::std, even), 0);
}

}  // namespace
}  // namespace braid::train
