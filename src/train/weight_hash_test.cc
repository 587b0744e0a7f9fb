#include "train/weight_hash.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

namespace braid::train {
namespace {

TEST(WeightHash, EveryBitAndPlaceCounts) {
  std::vector<float> values(600000, 1.0f);
  const uint64_t hash = weight_hash(values, 1);
  EXPECT_EQ(hash, weight_hash(values, 2));
  values[599999] = std::nextafter(1.0f, 2.0f);
  const uint64_t other = weight_hash(values, 1);
  EXPECT_NE(hash, other);
  std::swap(values[599999], values[3]);
  EXPECT_NE(other, weight_hash(values, 1));
}

}  // namespace
}  // namespace braid::train
