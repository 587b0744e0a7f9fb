// The drawn numbers of steps against figures of their distribution (mean 32, sigma 0.5, 8 steps with gradients), and
// that steps and states belong to a run's seed and step.
#include "train/depth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace braid::train {
namespace {

models::LoopSpec loop(int64_t steps, int64_t backward) {
  models::LoopSpec spec;
  spec.steps = steps;
  spec.backward_steps = backward;
  return spec;
}

TEST(Depth, FollowsItsDistribution) {
  constexpr int64_t kDraws = 40000;
  std::vector<int64_t> steps;
  double sum = 0, with_gradients = 0, few = 0;
  for (int64_t i = 0; i < kDraws; ++i) {
    const Depth d = draw_depth(loop(32, 8), 0.5, 1, i);
    steps.push_back(d.steps);
    sum += static_cast<double>(d.steps), with_gradients += static_cast<double>(d.backward);
    few += d.steps <= 8 ? 1 : 0;
  }
  std::sort(steps.begin(), steps.end());
  const auto quantile = [&](double q) { return static_cast<double>(steps[static_cast<size_t>(q * kDraws)]); };
  EXPECT_NEAR(sum / kDraws, 33.0, 0.3);
  EXPECT_NEAR(quantile(0.5), 29, 1);
  EXPECT_NEAR(quantile(0.05), 12, 1);
  EXPECT_NEAR(quantile(0.95), 67, 1);
  EXPECT_NEAR(quantile(0.99), 94, 3);
  EXPECT_NEAR(few / kDraws, 0.015, 0.003);
  EXPECT_NEAR(with_gradients / kDraws, 7.98, 0.01);
}

TEST(Depth, BelongsToSeedAndStep) {
  std::vector<int64_t> first, again, other;
  for (int64_t i = 0; i < 20; ++i) {
    first.push_back(draw_depth(loop(8, 4), 0.5, 1, i).steps);
    again.push_back(draw_depth(loop(8, 4), 0.5, 1, i).steps);
    other.push_back(draw_depth(loop(8, 4), 0.5, 2, i).steps);
  }
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
  EXPECT_NE(first, std::vector<int64_t>(20, first[0]));
}

TEST(Depth, WithoutSpreadIsPoissonPlusOne) {
  double sum = 0, squares = 0;
  constexpr int64_t kDraws = 20000;
  for (int64_t i = 0; i < kDraws; ++i) {
    const auto s = static_cast<double>(draw_depth(loop(6, 6), 0, 3, i).steps);
    sum += s, squares += s * s;
  }
  const double mean = sum / kDraws;
  EXPECT_NEAR(mean, 7, 0.1);
  EXPECT_NEAR(squares / kDraws - mean * mean, 6, 0.2);  // the variance of a Poisson number is its rate
}

// How a batch is cut changes no state.
TEST(Depth, StatesBelongToSamples) {
  SeqMap whole, part;
  whole.add(3, 0, 0, 7);
  whole.add(2, 0, 0, 9);
  part.add(2, 0, 0, 9);
  std::vector<float> all(5 * 4), some(2 * 4);
  fill_starts(loop(8, 4), 5, whole, mut_view_of(all.data(), {5, 4}));
  fill_starts(loop(8, 4), 5, part, mut_view_of(some.data(), {2, 4}));
  EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin() + 12));
  EXPECT_FALSE(std::equal(some.begin(), some.begin() + 4, all.begin()));
}

}  // namespace
}  // namespace braid::train
