#include "train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace braid::train {
namespace {

TEST(Schedule, WarmsUpThenStays) {
  const ScheduleRecipe s{.kind = "constant", .warmup = 10};
  EXPECT_DOUBLE_EQ(learning_rate(s, 2e-3, 0, 100), 2e-4);
  EXPECT_DOUBLE_EQ(learning_rate(s, 2e-3, 9, 100), 2e-3);
  EXPECT_DOUBLE_EQ(learning_rate(s, 2e-3, 99, 100), 2e-3);
}

TEST(Schedule, WsdFallsByMinusSqrt) {
  const ScheduleRecipe s{.kind = "wsd", .warmup = 2, .decay = 16, .min_lr = 0.1};
  EXPECT_DOUBLE_EQ(learning_rate(s, 1, 50, 100), 1);
  EXPECT_DOUBLE_EQ(learning_rate(s, 1, 84, 100), 1);
  EXPECT_DOUBLE_EQ(learning_rate(s, 1, 88, 100), 0.1 + 0.9 * 0.5);  // a quarter of the way
  EXPECT_DOUBLE_EQ(learning_rate(s, 1, 200, 100), 0.1);
}

TEST(Schedule, CosineEndsAtTheFloor) {
  const ScheduleRecipe s{.kind = "cosine", .warmup = 0, .decay = 100, .min_lr = 0.2};
  EXPECT_DOUBLE_EQ(learning_rate(s, 1, 0, 1000), 1);
  EXPECT_DOUBLE_EQ(learning_rate(s, 1, 50, 1000), 0.6);
  EXPECT_DOUBLE_EQ(learning_rate(s, 1, 500, 1000), 0.2);
}

}  // namespace
}  // namespace braid::train
