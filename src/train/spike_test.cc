#include "train/spike.h"

#include <gtest/gtest.h>

#include <vector>

namespace braid::train {
namespace {

// Nearly equal losses have almost no deviation: a difference below the floor is not a spike.
TEST(SpikeWindow, ADeviationHasAFloor) {
  std::vector<double> alike(8, 2.0);
  alike[3] = 2.0 + 1e-9;
  const SpikeWindow window(8, alike);
  EXPECT_NEAR(window.z_score(2.02), 2, 1e-6);
  EXPECT_NEAR(window.z_score(3), 100, 1e-5);
  std::vector<double> few(7, 2.0);
  EXPECT_EQ(SpikeWindow(8, few).z_score(3), 0);
}

}  // namespace
}  // namespace braid::train
