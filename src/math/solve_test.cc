#include "math/solve.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

TEST(Solve, RowsOfADefiniteMatrixAlone) {
  std::vector<double> a = {4, 2, 2, 5}, b = {8, 18, 1, 0};
  ASSERT_TRUE(solve_rows(a, b, 2));
  const std::vector<double> x = {0.25, 3.5, 0.3125, -0.125};  // [4 2; 2 5] x = (8, 18), (1, 0)
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(b[i], x[i], 1e-12);
  a = {1, 2, 2, 1};
  EXPECT_FALSE(solve_rows(a, b, 2));
}

}  // namespace
}  // namespace braid
