// Coded states against their bound, on values of very different sizes, and on those that no scale fits.
#include "kernels/copy_state/coded_state.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace braid {
namespace {

struct State {
  int64_t heads, rows, columns;
  std::vector<float> values = std::vector<float>(static_cast<size_t>(heads * rows * columns));
  float& at(int64_t h, int64_t p, int64_t n) { return values[static_cast<size_t>((h * rows + p) * columns + n)]; }
  MutView view() { return {reinterpret_cast<std::byte*>(values.data()), DType::f32, {heads, rows, columns}}; }
};

State coded(State state, int threads) {
  std::vector<std::byte> bytes(static_cast<size_t>(coded_state_bytes(state.heads, state.rows, state.columns)));
  encode_state(threads, state.view(), bytes);
  std::fill(state.values.begin(), state.values.end(), 7.0f);
  decode_state(threads, bytes, state.view());
  return state;
}

// Channels and columns whose sizes differ by up to 2^12, with outliers.
State random_state(int64_t heads, int64_t rows, int64_t columns, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  State s{heads, rows, columns};
  for (int64_t h = 0; h < heads; ++h) {
    std::vector<float> x(static_cast<size_t>(rows)), b(static_cast<size_t>(columns));
    for (float& v : x) v = std::exp2(2 * normal(random));
    for (float& v : b) v = std::exp2(2 * normal(random));
    for (int64_t p = 0; p < rows; ++p) {
      for (int64_t n = 0; n < columns; ++n)
        s.at(h, p, n) = normal(random) * x[static_cast<size_t>(p)] * b[static_cast<size_t>(n)] *
                        (random() % 500 == 0 ? 50.0f : 1.0f);
    }
  }
  return s;
}

TEST(CodedState, ErrorsAreAtMostHalfAStep) {
  struct Shape3 {
    int64_t heads, rows, columns;
  };
  for (const Shape3 shape : {Shape3{1, 1, 1}, Shape3{3, 5, 7}, Shape3{2, 80, 96}, Shape3{4, 64, 128}}) {
    State before = random_state(shape.heads, shape.rows, shape.columns, 5), after = coded(before, 2);
    EXPECT_EQ(after.values, coded(before, 1).values);
    double error = 0, sum = 0;
    for (int64_t h = 0; h < shape.heads; ++h) {
      for (int64_t p = 0; p < shape.rows; ++p) {
        double most = 0;
        for (int64_t n = 0; n < shape.columns; ++n) most = std::max<double>(most, std::fabs(before.at(h, p, n)));
        for (int64_t n = 0; n < shape.columns; ++n) {
          double column = 0;
          for (int64_t q = 0; q < shape.rows; ++q) {
            double largest = 0;
            for (int64_t m = 0; m < shape.columns; ++m)
              largest = std::max<double>(largest, std::fabs(before.at(h, q, m)));
            column = std::max(column, std::fabs(static_cast<double>(before.at(h, q, n))) / largest);
          }
          const double d = static_cast<double>(after.at(h, p, n)) - static_cast<double>(before.at(h, p, n));
          ASSERT_LE(std::fabs(d), most * column / 254 * 1.017 + 1e-30) << h << " " << p << " " << n;
          error += d * d;
          sum += static_cast<double>(before.at(h, p, n)) * static_cast<double>(before.at(h, p, n));
        }
      }
    }
    EXPECT_LT(std::sqrt(error / sum), 0.01) << shape.rows;  // 0.005 measured at 64 x 128
  }
}

TEST(CodedState, RowsThatAreNotFiniteAreNanAndTheOthersAsBefore) {
  constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  State plain = random_state(2, 6, 9, 1);
  for (int64_t n = 0; n < 9; ++n) plain.at(0, 2, n) = plain.at(1, 4, n) = plain.at(1, 5, n) = 0;
  State bad = plain;
  bad.at(0, 2, 3) = kInf;
  bad.at(1, 4, 8) = kNan;
  bad.at(1, 5, 0) = -std::numeric_limits<float>::max();
  State got = coded(bad, 1), want = coded(plain, 1);
  for (int64_t h = 0; h < 2; ++h) {
    for (int64_t p = 0; p < 6; ++p) {
      const bool poisoned = (h == 0 && p == 2) || (h == 1 && p >= 4);
      for (int64_t n = 0; n < 9; ++n) {
        EXPECT_EQ(std::isnan(got.at(h, p, n)), poisoned) << h << " " << p << " " << n;
        EXPECT_TRUE(poisoned || got.at(h, p, n) == want.at(h, p, n)) << h << " " << p << " " << n;
        EXPECT_TRUE(!poisoned || want.at(h, p, n) == 0);
      }
    }
  }
}

TEST(CodedState, ZeroTinyAndHugeValues) {
  State s{1, 4, 3};
  s.at(0, 1, 0) = 1e-38f;  // below the bound
  s.at(0, 2, 1) = -3e38f;
  s.at(0, 3, 2) = 5e-30f;
  State got = coded(s, 1);
  EXPECT_EQ(got.at(0, 1, 0), 0);
  EXPECT_NEAR(got.at(0, 2, 1) / -3e38f, 1, 0.01);
  EXPECT_NEAR(got.at(0, 3, 2) / 5e-30f, 1, 0.01);
  for (int64_t n = 0; n < 3; ++n) EXPECT_EQ(got.at(0, 0, n), 0);
}

TEST(CodedState, TakesAQuarter) {
  EXPECT_EQ(coded_state_bytes(1, 3, 3), 10 + 12);
  EXPECT_LT(38 * coded_state_bytes(64, 64, 128), 10 * 4 * 64 * 64 * 128);
}

}  // namespace
}  // namespace braid
