// Sums against FP64, and the corners of max and min: NaN, signed zeros, integers that wrap.
#include "comm/reduction.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "core/view.h"

namespace braid::comm {
namespace {

template <class Num>
Num combined_once(Reduction op, Num a, Num b) {
  combine(dtype_for<Num>(), op, reinterpret_cast<std::byte*>(&a), reinterpret_cast<const std::byte*>(&b), 1);
  return a;
}

TEST(Reduction, Bf16SumsAreRoundedOnce) {
  EXPECT_EQ(combined_once(Reduction::sum, to_bf16(256.0f), to_bf16(1.0f)).bits, to_bf16(257.0f).bits);
  EXPECT_EQ(combined_once(Reduction::sum, to_bf16(1.0f), to_bf16(0x1p-9f)).bits, to_bf16(1.0f + 0x1p-9f).bits);
  EXPECT_EQ(to_float(combined_once(Reduction::sum, to_f16(1000.0f), to_f16(0.25f))), 1000.0f);
}

TEST(Reduction, OperandsCommuteBitForBit) {
  const float values[] = {0.0f, -0.0f, 1.5f, -1.5f, INFINITY, -INFINITY, NAN, -NAN};
  for (const Reduction op : {Reduction::sum, Reduction::max, Reduction::min}) {
    for (const float a : values) {
      for (const float b : values) {
        const float ab = combined_once(op, a, b), ba = combined_once(op, b, a);
        EXPECT_EQ(std::memcmp(&ab, &ba, 4), 0) << name_of(op) << " of " << a << " and " << b;
        EXPECT_TRUE(std::isnan(ab) || !(std::isnan(a) || std::isnan(b)));
      }
    }
  }
  EXPECT_FALSE(std::signbit(combined_once(Reduction::max, -0.0f, 0.0f)));
  EXPECT_TRUE(std::signbit(combined_once(Reduction::min, 0.0f, -0.0f)));
}

TEST(Reduction, IntegersWrap) {
  EXPECT_EQ(combined_once<uint8_t>(Reduction::sum, 200, 100), 44);
  EXPECT_EQ(combined_once<int32_t>(Reduction::sum, INT32_MAX, 1), INT32_MIN);
  EXPECT_EQ(combined_once<int64_t>(Reduction::min, INT64_MIN, 3), INT64_MIN);
  EXPECT_EQ(combined_once<uint8_t>(Reduction::max, 200, 100), 200);
}

TEST(Reduction, NamesGoBothWays) {
  for (const Reduction op : {Reduction::sum, Reduction::max, Reduction::min}) EXPECT_EQ(reduction_of(name_of(op)), op);
  EXPECT_FALSE(reduction_of("mean"));
}

}  // namespace
}  // namespace braid::comm
