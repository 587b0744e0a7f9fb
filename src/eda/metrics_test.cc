// Coefficients and regrets beside values worked out by hand.
#include "eda/metrics.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace braid::eda {
namespace {

TEST(Metrics, RanksOfEqualValuesAreTheirMean) {
  EXPECT_EQ(ranks_of(std::vector<double>{5, 1, 5, 2, 5}), (std::vector<double>{4, 1, 4, 2, 4}));
  EXPECT_TRUE(ranks_of({}).empty());
}

TEST(Metrics, SpearmanWithTies) {
  // Ranks 1, 2.5, 2.5, 4 and 1, 4, 2.5, 2.5: products of deviations 2.25, squares 4.5 each.
  const std::vector<double> a = {1, 2, 2, 3}, b = {1, 3, 2, 2};
  EXPECT_NEAR(*spearman(a, b), 0.5, 1e-12);
  // Without ties 1 - 6 sum of d^2 / (n (n^2 - 1)): d = 1, 1, 1, 1, 2.
  const std::vector<double> c = {1, 2, 3, 4, 5}, d = {20, 10, 30, 60, 25};
  EXPECT_NEAR(*spearman(c, d), 1 - 6 * (1 + 1 + 1 + 1 + 4) / 120.0, 1e-12);
  std::vector<double> e = {-5, -4, -3, -2, 100};
  EXPECT_NEAR(*spearman(c, e), 1, 1e-12);
  std::reverse(e.begin(), e.end());
  EXPECT_NEAR(*spearman(c, e), -1, 1e-12);
}

TEST(Metrics, NoOrderNoCoefficient) {
  EXPECT_FALSE(spearman(std::vector<double>{1, 1, 1}, std::vector<double>{1, 2, 3}));
  EXPECT_FALSE(spearman(std::vector<double>{1, 2, 3}, std::vector<double>{2, 2, 2}));
  EXPECT_FALSE(spearman(std::vector<double>{1}, std::vector<double>{1}));
  EXPECT_FALSE(spearman({}, {}));
  EXPECT_FALSE(determination(std::vector<double>{1, 2}, std::vector<double>{3, 3}));
  EXPECT_FALSE(determination({}, {}));
}

TEST(Metrics, DeterminationIsOneMinusTheRest) {
  const std::vector<double> values = {1, 2, 3};
  EXPECT_NEAR(*determination(std::vector<double>{1, 2, 3}, values), 1, 1e-12);
  EXPECT_NEAR(*determination(std::vector<double>{2, 2, 2}, values), 0, 1e-12);
  EXPECT_NEAR(*determination(std::vector<double>{1, 3, 3}, values), 0.5, 1e-12);
}

TEST(Metrics, RegretOfTheFirstFew) {
  const std::vector<double> predicted = {3, 1, 2, 0}, values = {10, 20, 15, 30};
  EXPECT_NEAR(top_regret(predicted, values, 1), 2, 1e-12);
  EXPECT_NEAR(top_regret(predicted, values, 2), 1, 1e-12);
  EXPECT_NEAR(top_regret(predicted, values, 3), 0.5, 1e-12);
  EXPECT_NEAR(top_regret(predicted, values, 4), 0, 1e-12);
  EXPECT_NEAR(top_regret(predicted, values, 9), 0, 1e-12);
  EXPECT_NEAR(top_regret(std::vector<double>{0, 0, 0, 0}, values, 1), 0, 1e-12);  // the first
}

TEST(Metrics, RegretByChanceIsTheMeanOverAllDraws) {
  const std::vector<double> values = {10, 20, 15, 30};
  EXPECT_NEAR(chance_regret(values, 1), 0.875, 1e-12);
  EXPECT_NEAR(chance_regret(values, 2), (3 * 10 + 15 + 20 + 15) / 6.0 / 10 - 1, 1e-12);
  EXPECT_NEAR(chance_regret(values, 3), (3 * 10 + 15) / 4.0 / 10 - 1, 1e-12);
  EXPECT_NEAR(chance_regret(values, 4), 0, 1e-12);
  EXPECT_NEAR(chance_regret(values, 5), 0, 1e-12);
}

TEST(Metrics, LeastSquaresFindsTheLine) {
  const std::vector<std::vector<double>> rows = {{1, 0}, {0, 1}, {2, 1}, {3, 5}, {-1, 2}};
  std::vector<double> values;
  for (const auto& row : rows) values.push_back(2 * row[0] - 3 * row[1] + 5);
  const std::vector<double> weights = least_squares(rows, values, 1e-12);
  ASSERT_EQ(weights.size(), 3u);
  EXPECT_NEAR(weights[0], 2, 1e-9);
  EXPECT_NEAR(weights[1], -3, 1e-9);
  EXPECT_NEAR(weights[2], 5, 1e-9);
}

}  // namespace
}  // namespace braid::eda
