// Random states of a loop: their distribution, and that they belong to positions.
#include "models/loop_start.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace braid::models {
namespace {

std::vector<float> start_state(uint64_t seed, int64_t position, size_t width, float std = 1) {
  std::vector<float> out(width);
  LoopSpec spec;
  spec.start_std = std;
  loop_start(spec, {seed, 1}, position, out);
  return out;
}

// A standard normal truncated at 3 has the variance 1 - 6 phi(3) / (2 Phi(3) - 1).
TEST(LoopStart, IsATruncatedNormal) {
  double sum = 0, squares = 0, most = 0;
  constexpr size_t kWidth = 200, kStates = 1000;
  for (size_t i = 0; i < kStates; ++i) {
    for (const float v : start_state(3, static_cast<int64_t>(i), kWidth, 0.5f)) {
      sum += v, squares += v * v;
      most = std::max(most, std::abs(static_cast<double>(v)));
    }
  }
  constexpr double kValues = kWidth * kStates, kVariance = 0.97334;
  EXPECT_NEAR(sum / kValues, 0, 0.005);
  EXPECT_NEAR(squares / kValues, 0.25 * kVariance, 0.003);
  EXPECT_LE(most, 1.5);
  EXPECT_GT(most, 1.45);
}

TEST(LoopStart, BelongsToASeedAndAPosition) {
  EXPECT_EQ(start_state(1, 5, 24), start_state(1, 5, 24));
  EXPECT_NE(start_state(1, 5, 24), start_state(1, 6, 24));
  EXPECT_NE(start_state(1, 5, 24), start_state(2, 5, 24));
}

}  // namespace
}  // namespace braid::models
