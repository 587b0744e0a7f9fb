// Thresholds (math/thresholds.h) change the time of products and no bit, and are read strictly.
#include <gtest/gtest.h>

#include <cstring>

#include "codec/test_weight.h"
#include "core/op_sweep.h"
#include "kernels/linear/linear.h"
#include "support/error_of.h"

namespace braid {
namespace {

using Choices = std::map<std::string, std::string>;

// Every row that takes the product, with each threshold at both of its ends and at the number of rows given: the bits
// of the defaults.
void hold(const Weight& w, DType x_type, CodeDots codes, int64_t rows) {
  const TestTensor x(x_type, {rows, w.cols}, 1);
  Arena arena;
  Ctx ctx{.arena = arena, .threads = 2};
  for (const Row<LinearFwd>& row : LinearFwd::rows().first(LinearFwd::rows().size() - 1)) {  // without the reference
    const auto result = [&](const Thresholds& t) {
      TestTensor y(DType::f32, {rows, w.rows}, 2);
      run_row(ctx, {.x = x.view(), .w = w, .y = y.mut(), .codes = codes, .thresholds = &t}, row);
      const auto* values = y.view().as<float>();
      return std::vector<float>(values, values + y.view().count());
    };
    TestTensor probe(DType::f32, {rows, w.rows}, 2);
    if (refusal(row, {.x = x.view(), .w = w, .y = probe.mut(), .codes = codes}, Device::cpu)) continue;
    const std::vector<float> want = result({});
    for (const Threshold& threshold : threshold_table()) {
      for (const int64_t value : {int64_t{0}, rows, threshold.most}) {
        Thresholds t;
        t.*threshold.value = value;
        const std::vector<float> got = result(t);
        EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(float)), 0)
            << row.name << " " << threshold.name << " = " << value << ", " << rows << " rows";
      }
    }
  }
}

TEST(Thresholds, ChangeNoBit) {
  // Columns of several tasks with a rest, and depths of several blocks with a rest.
  constexpr int64_t kCols = 300, kDepth = 2336;
  for (const int64_t rows : {1, 2, 3, 4, 5, 67}) {
    hold(TestWeight(Format::f32, kCols, kDepth, 3).weight(), DType::f32, CodeDots::none, rows);
    hold(TestWeight(Format::bf16, kCols, kDepth, 4).weight(), DType::f32, CodeDots::none, rows);
    hold(TestWeight(Format::bf16, kCols, kDepth, 4).weight(), DType::bf16, CodeDots::none, rows);
    for (const CodeDots codes : {CodeDots::none, CodeDots::a8}) {
      hold(TestWeight(Format::nvfp4, kCols, kDepth, 5).weight(), DType::bf16, codes, rows);
      for (const GgmlType type : {GgmlType::q4_0, GgmlType::q4_1, GgmlType::q8_0})
        hold(TestWeight(type, kCols, kDepth, 6).weight(), DType::bf16, codes, rows);
    }
  }
}

TEST(Thresholds, AreNumbersInTheirRange) {
  EXPECT_EQ(thresholds_of({}).panel_few_rows, Thresholds().panel_few_rows);
  const Thresholds t = thresholds_of(Choices{{"panel_few_rows", "16"}, {"linear_fwd", "panel_f32"}});
  EXPECT_EQ(t.panel_few_rows, 16);
  EXPECT_EQ(t.panel_task_rows, Thresholds().panel_task_rows);
  EXPECT_EQ(thresholds_of(Choices{{"panel_few_rows", "0"}}, t).panel_few_rows, 0);  // the later choice
  for (const char* bad : {"", "-1", "513", "99999999999999999999", "16 ", "1x", "panel_f32", "\n"}) {
    const std::string error = support::error_of([&] {
      thresholds_of(Choices{{"panel_few_rows", bad}}, {}, "a profile");
    });
    EXPECT_TRUE(error.starts_with("[a profile] panel_few_rows is ") && error.find("0 to 512") != std::string::npos)
        << error;
    EXPECT_EQ(error.find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace braid
