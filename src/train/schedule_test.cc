#include "train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "train/origin.h"

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

// What does not fit into the run is cut at its beginning, with a note.
TEST(Schedule, DecaysThatDoNotFitAreNoted) {
  const auto notes = [](const ScheduleRecipe& s) {
    Recipe recipe;
    recipe.steps = 100;
    recipe.optimizer.lr = 1;
    recipe.schedule = s;
    std::string all;
    for (const std::string& line : idle_words(recipe)) all += line + "\n";
    return all;
  };
  const ScheduleRecipe fits{.kind = "wsd", .warmup = 20, .decay = 80, .min_lr = 1};
  EXPECT_EQ(notes(fits), "");
  const ScheduleRecipe longer{.kind = "wsd", .decay = 400};  // a quarter is left: from half the rate on
  EXPECT_DOUBLE_EQ(learning_rate(longer, 1, 0, 100), 1 - std::sqrt(0.75));
  EXPECT_DOUBLE_EQ(learning_rate(longer, 1, 100, 100), 0);
  EXPECT_NE(notes(longer).find("schedule.decay = 400 is more than steps = 100"), std::string::npos) << notes(longer);
  const ScheduleRecipe overlaps{.kind = "wsd", .warmup = 40, .decay = 80};
  EXPECT_DOUBLE_EQ(learning_rate(overlaps, 1, 39, 100), 1);
  EXPECT_DOUBLE_EQ(learning_rate(overlaps, 1, 40, 100), 1 - std::sqrt(0.25));
  EXPECT_NE(notes(overlaps).find("the rate drops after the warm-up"), std::string::npos) << notes(overlaps);
  for (const char* kind : {"wsd", "cosine"}) {
    const ScheduleRecipe rises{.kind = kind, .decay = 50, .min_lr = 2};
    EXPECT_DOUBLE_EQ(learning_rate(rises, 1, 100, 100), 2);
    EXPECT_NE(notes(rises).find("schedule.min_lr = 2 is above optimizer.lr = 1"), std::string::npos) << notes(rises);
  }
}

TEST(Schedule, CosineEndsAtTheFloor) {
  const ScheduleRecipe s{.kind = "cosine", .warmup = 0, .decay = 100, .min_lr = 0.2};
  EXPECT_DOUBLE_EQ(learning_rate(s, 1, 0, 1000), 1);
  EXPECT_DOUBLE_EQ(learning_rate(s, 1, 50, 1000), 0.6);
  EXPECT_DOUBLE_EQ(learning_rate(s, 1, 500, 1000), 0.2);
}

}  // namespace
}  // namespace braid::train
