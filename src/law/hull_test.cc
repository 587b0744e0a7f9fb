// The hull of points by hand, and of the optima of a law.
#include "law/hull.h"

#include <gtest/gtest.h>

#include <cmath>

#include "law/law_fixture.h"
#include "law/plan.h"

namespace braid::law {
namespace {

// Of points given as logarithms.
std::vector<double> hull_of(const std::vector<std::pair<double, double>>& points) {
  std::vector<Row> rows;
  for (const auto& [flops, loss] : points)
    rows.push_back({.params = 1, .tokens = 1, .flops = std::exp(flops), .loss = std::exp(loss)});
  std::vector<double> flops;
  for (const Row& r : lower_hull(rows)) flops.push_back(std::round(std::log(r.flops)));
  return flops;
}

TEST(Hull, FallingSideOnly) {
  EXPECT_EQ(hull_of({{3, 1}, {1, 9}, {2, 4}, {4, 0.5}, {5, 0.6}, {2, 7}}), (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(hull_of({{1, 9}, {2, 8}, {3, 1}}), (std::vector<double>{1, 3}));  // 2 is above the chord
  EXPECT_EQ(hull_of({{1, 2}, {2, 3}, {3, 2}}), (std::vector<double>{1}));     // nothing falls
}

// Along the optima of a law for a dense range of budgets, the hull gives the law's own exponents.
TEST(Hull, FollowsTheOptimaOfALaw) {
  Runs runs;
  for (int c = 0; c < 12; ++c) {
    for (const double ratio : {0.25, 1.0, 4.0}) {
      const double flops = 1e18 * std::pow(2.0, c);
      const Shape best = optimum(kKnown, flops, 6);
      Row row{.params = ratio * best.params, .tokens = best.tokens / ratio, .flops = flops, .run = runs.count++};
      row.loss = kKnown.loss(row.params, row.tokens);
      runs.rows.push_back(row);
    }
  }
  const auto found = fit_frontier(runs, {});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->points, 12);
  EXPECT_NEAR(found->params.exponent, kKnown.size_exponent(), 1e-9);
  EXPECT_NEAR(found->tokens.exponent, 1 - kKnown.size_exponent(), 1e-9);
  EXPECT_NEAR(found->params.at(1e20), optimum(kKnown, 1e20, 6).params, 1e3);
}

// parameters/approach_1_linear_regression_params.json and ..._tokens.json of the repository that published the rows.
TEST(Hull, PublishedFit) {
  BRAID_NEEDS_GEMSTONES();
  const auto found = fit_frontier(gemstones("gemstones-hot-477.csv"), {});
  ASSERT_TRUE(found);
  EXPECT_NEAR(found->params.exponent, 0.499380216082636, 1e-7);
  EXPECT_NEAR(found->params.intercept, -2.8451076960767026, 1e-5);
  EXPECT_NEAR(found->tokens.exponent, 0.4809888232129201, 1e-7);
  EXPECT_NEAR(found->tokens.intercept, 1.8963208273327723, 1e-5);
}

}  // namespace
}  // namespace braid::law
