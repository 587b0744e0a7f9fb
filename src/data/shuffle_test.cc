#include "data/shuffle.h"

#include <gtest/gtest.h>

#include <vector>

namespace braid::data {
namespace {

TEST(Shuffle, IsABijectionForEverySizeAndKey) {
  for (const int64_t n : {1, 2, 3, 4, 5, 16, 17, 100, 1023, 1025}) {
    for (const uint64_t key : {0U, 1U, 77U}) {
      std::vector<bool> seen(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i) {
        const int64_t to = shuffled(i, n, key);
        ASSERT_TRUE(to >= 0 && to < n) << n;
        ASSERT_FALSE(seen[static_cast<size_t>(to)]) << n;
        seen[static_cast<size_t>(to)] = true;
      }
    }
  }
}

TEST(Shuffle, ReachesFarAndKeysDiffer) {
  const int64_t n = 10'000;
  int64_t same_key = 0, fixed = 0, ascending = 0;
  for (int64_t i = 0; i + 1 < n; ++i) {
    const int64_t to = shuffled(i, n, 5);
    same_key += to == shuffled(i, n, 6);
    fixed += to == i;
    ascending += shuffled(i + 1, n, 5) > to;
  }
  EXPECT_LT(same_key, 10);
  EXPECT_LT(fixed, 10);
  EXPECT_NEAR(static_cast<double>(ascending) / static_cast<double>(n), 0.5, 0.02);
  EXPECT_LT(shuffled((int64_t{1} << 40) - 1, int64_t{1} << 40, 1), int64_t{1} << 40);
}

}  // namespace
}  // namespace braid::data
