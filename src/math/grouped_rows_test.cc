// Rows in groups: found from zeros, complete, and refused where they would not pay. Values are small whole numbers, so
// that every sum is exact in any order and products must equal the plain triple loop to the bit.
#include "math/grouped_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/philox.h"

namespace braid {
namespace {

// A matrix [rows, cols] whose row r has values in the columns that its group has, about `density` of them, the groups
// being r * 7 % (rows / height): shuffled. Every value is a whole number from -4 to 4 other than 0.
std::vector<float> grouped_values(int64_t rows, int64_t cols, int64_t height, double density, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(rows * cols));
  const int64_t groups = rows / height;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t group = r * 7 % groups;
    for (int64_t c = 0; c < cols; ++c) {
      const auto own = philox({.seed = seed}, static_cast<uint64_t>(group * cols + c));
      if (static_cast<double>(uniform(own[0])) > density) continue;
      const auto bits = philox({.seed = seed, .stream = 1}, static_cast<uint64_t>(r * cols + c));
      const auto size = static_cast<float>(1 + bits[0] % 4);
      values[static_cast<size_t>(r * cols + c)] = bits[1] % 2 == 0 ? size : -size;
    }
  }
  return values;
}

std::vector<Bf16> rounded(const std::vector<float>& values) {
  std::vector<Bf16> out;
  for (const float v : values) out.push_back(to_bf16(v));
  return out;
}

std::vector<float> whole_numbers(int64_t n, uint64_t seed) {
  std::vector<float> out;
  for (int64_t i = 0; i < n; ++i)
    out.push_back(static_cast<float>(philox({.seed = seed}, static_cast<uint64_t>(i))[0] % 9) - 4);
  return out;
}

std::vector<float> product(const GroupedRows& g, const View& x, const View& bias) {
  const int64_t tokens = x.dim(0);
  std::vector<float> panels(static_cast<size_t>(grouped_floats(tokens, g.cols)), std::nanf("")),
      y(static_cast<size_t>(tokens * g.rows), std::nanf(""));
  for (int64_t p = 0; p < grouped_panels(tokens); ++p) pack_grouped(x, p, panels.data());
  const MutView out = mut_view_of(y.data(), {tokens, g.rows});
  for (int64_t group = 0; group < g.groups(); ++group)
    grouped_product(g.view(), group, panels.data(), 0, grouped_panels(tokens), bias, out);
  return y;
}

TEST(GroupedRows, ProductsEqualThePlainLoop) {
  struct Case {
    int64_t rows, cols, height;
  };
  for (const Case& c : {Case{64, 40, 16}, Case{128, 33, 32}, Case{256, 200, 64}, Case{48, 17, 16}, Case{96, 1, 32}}) {
    const std::vector<float> w = grouped_values(c.rows, c.cols, c.height, 0.3, 1);
    const std::vector<Bf16> half = rounded(w);
    for (const bool bf16 : {false, true}) {
      const Weight weight =
          dense_weight(bf16 ? view_of(half.data(), {c.rows, c.cols}) : view_of(w.data(), {c.rows, c.cols}));
      const auto g = find_groups(weight, 1);
      ASSERT_TRUE(g) << c.rows;
      EXPECT_GE(g->height, c.height);
      for (const int64_t tokens : {1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 16, 31, 100}) {
        const std::vector<float> x = whole_numbers(tokens * c.cols, 2), bias = whole_numbers(c.rows, 3);
        const std::vector<Bf16> x_half = rounded(x);
        const View xv = bf16 ? view_of(x_half.data(), {tokens, c.cols}) : view_of(x.data(), {tokens, c.cols});
        const std::vector<float> y = product(*g, xv, view_of(bias.data(), {c.rows}));
        for (int64_t t = 0; t < tokens; ++t) {
          for (int64_t r = 0; r < c.rows; ++r) {
            float sum = bias[static_cast<size_t>(r)];
            for (int64_t k = 0; k < c.cols; ++k)
              sum += x[static_cast<size_t>(t * c.cols + k)] * w[static_cast<size_t>(r * c.cols + k)];
            ASSERT_EQ(y[static_cast<size_t>(t * c.rows + r)], sum) << c.rows << " " << tokens << " " << t << " " << r;
          }
        }
      }
    }
  }
}

// Columns that no row of a group has are not read: NaN there reaches only the rows that have them.
TEST(GroupedRows, SkippedColumnsAreNotRead) {
  const int64_t rows = 32, cols = 8;
  std::vector<float> w(static_cast<size_t>(rows * cols), 0), x(static_cast<size_t>(cols), 1);
  for (int64_t r = 0; r < rows; ++r) w[static_cast<size_t>(r * cols + (r % 2 == 0 ? 1 : 6))] = 2;
  x[6] = std::nanf("");
  const auto g = find_groups(dense_weight(view_of(w.data(), {rows, cols})), 0.5);
  ASSERT_TRUE(g);
  const std::vector<float> y = product(*g, view_of(x.data(), {1, cols}), {});
  for (int64_t r = 0; r < rows; ++r) EXPECT_EQ(std::isnan(y[static_cast<size_t>(r)]), r % 2 == 1) << r;
}

TEST(GroupedRows, EveryRowIsInOneGroupAndEveryValueIsStored) {
  const int64_t rows = 80, cols = 96;  // 5 groups of 16 rows
  std::vector<float> w = grouped_values(rows, cols, 16, 0.25, 4);
  for (int64_t c = 0, lost = 0; c < cols && lost < 1; ++c) {  // a row that lacks one value of its group
    float& v = w[static_cast<size_t>(3 * cols + c)];
    lost += v != 0;
    v = 0;
  }
  const auto g = find_groups(dense_weight(view_of(w.data(), {rows, cols})), 0.5);
  ASSERT_TRUE(g);
  std::vector<float> again(w.size(), 0);
  std::vector<int> seen(static_cast<size_t>(rows));
  const auto* value = reinterpret_cast<const float*>(g->values.data());
  for (int64_t group = 0; group < g->groups(); ++group) {
    for (int64_t i = 0; i < g->height; ++i) {
      const int32_t r = g->row_of[static_cast<size_t>(group * g->height + i)];
      if (r < 0) continue;
      ++seen[static_cast<size_t>(r)];
      for (int64_t k = g->begin[static_cast<size_t>(group)]; k < g->begin[static_cast<size_t>(group) + 1]; ++k)
        again[static_cast<size_t>(r * cols + g->columns[static_cast<size_t>(k)])] = value[k * g->height + i];
    }
  }
  EXPECT_EQ(again, w);
  for (const int n : seen) EXPECT_EQ(n, 1);
}

TEST(GroupedRows, MatricesThatWouldNotGainHaveNone) {
  const auto find = [](const std::vector<float>& w, int64_t rows, double most) {
    return find_groups(dense_weight(view_of(w.data(), {rows, std::ssize(w) / rows})), most);
  };
  EXPECT_TRUE(find(grouped_values(64, 100, 16, 0.3, 5), 64, 0.5));
  EXPECT_FALSE(find(grouped_values(64, 100, 16, 0.3, 5), 64, 0.2));  // too dense
  EXPECT_FALSE(find(grouped_values(64, 100, 1, 0.3, 5), 64, 0.5));   // no structure
  EXPECT_FALSE(find(grouped_values(64, 100, 4, 0.3, 5), 64, 0.5));   // groups of too few rows
  EXPECT_FALSE(find(std::vector<float>(6400, 1.0f), 64, 0.5));
  std::vector<float> scaled = grouped_values(64, 100, 16, 0.3, 5);
  Weight w = dense_weight(view_of(scaled.data(), {64, 100}));
  w.global = 2;
  EXPECT_FALSE(find_groups(w, 0.5));
}

TEST(GroupedRows, AMatrixOfZerosGivesTheBias) {
  const std::vector<float> w(size_t{20} * 6, 0.0f), x = whole_numbers(18, 1), bias = whole_numbers(20, 2);
  const auto g = find_groups(dense_weight(view_of(w.data(), {20, 6})), 0.5);
  ASSERT_TRUE(g);
  EXPECT_EQ(g->columns.size(), 0u);
  const std::vector<float> y = product(*g, view_of(x.data(), {3, 6}), view_of(bias.data(), {20}));
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], bias[i % 20]);
}

}  // namespace
}  // namespace braid
