// Products that skip zeros against products that do not: the same bits as the dense product whose sums are one chain,
// whatever is computed together.
#include "kernels/linear/linear_grouped.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>

#include "core/op_sweep.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_rows.h"
#include "math/grouped_rows.h"

namespace braid {
namespace {

struct GroupedCase {
  int64_t tokens, rows, depth;
};

// Zeros in all but a quarter of the columns, which differ between the groups that rows r % 2 (or 3) are.
void zero_in_groups(TestTensor& w) {
  const int64_t rows = w.shape[0], cols = w.shape[1], groups = rows % 96 == 0 ? 3 : 2;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      if ((c * 5 + r % groups) % 4 != 0) set_element(w.mut(), r * cols + c, 0);
    }
  }
}

void hold_bits(const GroupedCase& c, DType type, DType out, bool has_bias) {
  TestTensor x(type, {c.tokens, c.depth}, 1), w(type, {c.rows, c.depth}, 2), bias(DType::f32, {c.rows}, 3),
      want(out, {c.tokens, c.rows}, 4), got(out, {c.tokens, c.rows}, 5), one(out, {1, c.rows}, 6);
  zero_in_groups(w);
  const auto groups = find_groups(dense_weight(w.view()), 0.5);
  ASSERT_TRUE(groups);
  const View b = has_bias ? bias.view() : View();
  Arena arena;
  Ctx ctx{.arena = arena, .threads = 2};
  const LinearFwd dense{.x = x.view(), .w = dense_weight(w.view()), .bias = b, .y = want.mut(), .train = true};
  const packed::Class c_dense = type == DType::f32 ? packed::Class::f32 : packed::Class::bf16;
  const Tensor scratch(arena, DType::u8, {linear_packed_workspace(c_dense, dense, 2)});
  linear_packed(c_dense, ctx, dense, {scratch.mut().data, static_cast<size_t>(scratch.view().bytes())});
  LinearGroupedFwd op{.x = x.view(), .w = dense.w, .groups = groups->view(), .bias = b, .y = got.mut()};
  const Row<LinearGroupedFwd>& row = row_named<LinearGroupedFwd>(type == DType::f32 ? "lanes_f32" : "lanes_bf16");
  for (const int threads : {1, 3}) {
    fill(got.mut(), NAN);
    ctx.threads = threads;
    EXPECT_EQ(&choose(ctx, op), &row);
    run_row(ctx, op, row);
    ASSERT_EQ(std::memcmp(got.bytes.data(), want.bytes.data(), want.bytes.size()), 0)
        << c.tokens << " x " << c.rows << " x " << c.depth << " " << row.name;
  }
  for (int64_t t = 0; t < c.tokens; t += 1 + c.tokens / 5) {  // alone
    op.x = x.view().slice(0, t, 1);
    op.y = one.mut();
    run_row(ctx, op, row);
    ASSERT_EQ(std::memcmp(one.bytes.data(), want.view().slice(0, t, 1).data, one.bytes.size()), 0) << t;
  }
}

TEST(LinearGrouped, AgreesWithDenseProductsBitForBit) {
  for (const GroupedCase& c :
       {GroupedCase{1, 64, 96}, {5, 32, 83}, {13, 96, 515}, {40, 192, 1856}, {515, 64, 40}, {2100, 32, 24}}) {
    for (const DType type : {DType::f32, DType::bf16}) {
      for (const DType out : {DType::f32, DType::bf16}) {
        hold_bits(c, type, out, false);
        hold_bits(c, type, out, true);
      }
    }
  }
}

TEST(LinearGrouped, EveryRowAgreesWithTheReference) {
  TestTensor x(DType::f32, {7, 96}, 1), w(DType::bf16, {64, 96}, 2), bias(DType::f32, {64}, 3),
      y(DType::f32, {7, 64}, 4);
  zero_in_groups(w);
  const Weight weight = dense_weight(w.view());
  const auto groups = find_groups(weight, 0.5);
  ASSERT_TRUE(groups);
  const LinearGroupedFwd op{.x = x.view(), .w = weight, .groups = groups->view(), .bias = bias.view(), .y = y.mut()};
  sweep(op, 2e-5, 2e-5);
}

// Groups alone say what the weight with its zeros does.
TEST(LinearGrouped, TheReferenceNeedsNoDenseWeight) {
  TestTensor x(DType::f32, {5, 83}, 1), w(DType::f32, {64, 83}, 2), want(DType::f32, {5, 64}, 4),
      got(DType::f32, {5, 64}, 5);
  zero_in_groups(w);
  const auto groups = find_groups(dense_weight(w.view()), 0.5);
  ASSERT_TRUE(groups);
  Arena arena;
  Ctx ctx{.arena = arena};
  LinearGroupedFwd op{.x = x.view(), .w = dense_weight(w.view()), .groups = groups->view(), .y = want.mut()};
  run_row(ctx, op, row_named<LinearGroupedFwd>("ref"));
  op.w = {};
  op.y = got.mut();
  run_row(ctx, op, row_named<LinearGroupedFwd>("ref"));
  EXPECT_EQ(got.bytes, want.bytes);
}

// A weight that has groups is multiplied by them like any other, in rows of any number, with the bits of the op above;
// not in training, nor a part of its rows, nor where it would be rounded.
TEST(LinearGrouped, AWeightWithGroupsIsAFormat) {
  TestTensor w(DType::bf16, {192, 515}, 2), bias(DType::f32, {192}, 3);
  zero_in_groups(w);
  const auto groups = find_groups(dense_weight(w.view()), 0.5);
  ASSERT_TRUE(groups);
  const GroupedView view = groups->view();
  Weight weight = dense_weight(w.view());
  weight.groups = &view;
  EXPECT_LT(weight.product_bytes(), weight.bytes() / 3);
  EXPECT_EQ(weight.product_values(), 64 * (129 + 128 + 129));
  Arena arena;
  Ctx ctx{.arena = arena, .threads = 3};
  for (const DType type : {DType::f32, DType::bf16}) {
    TestTensor x(type, {13, 515}, 1), want(DType::f32, {13, 192}, 4), got(DType::f32, {13, 192}, 5);
    run(ctx, LinearGroupedFwd{.x = x.view(), .groups = view, .bias = bias.view(), .y = want.mut()});
    for (const int64_t rows : {1, 5, 13}) {
      for (int64_t t = 0; t < 13; t += rows) {
        const int64_t n = std::min(rows, 13 - t);
        const LinearFwd op{
            .x = x.view().slice(0, t, n), .w = weight, .bias = bias.view(), .y = got.mut().slice(0, t, n)};
        EXPECT_STREQ(choose(ctx, op).name, type == DType::f32 ? "groups_f32" : "groups_bf16");
        run(ctx, op);
      }
      EXPECT_EQ(got.bytes, want.bytes) << rows;
      fill(got.mut(), NAN);
    }
    LinearFwd other{.x = x.view(), .w = weight, .y = got.mut(), .train = true};
    EXPECT_EQ(std::string(choose(ctx, other).name).find("groups"), std::string::npos);
    other = {.x = x.view(), .w = weight.rows_of(64, 64), .y = got.mut().slice(1, 0, 64)};
    EXPECT_EQ(std::string(choose(ctx, other).name).find("groups"), std::string::npos);
  }
  TestTensor wide(DType::f32, {192, 515}, 2), x(DType::bf16, {2, 515}, 1), y(DType::f32, {2, 192}, 4);
  zero_in_groups(wide);
  const auto of_wide = find_groups(dense_weight(wide.view()), 0.5);
  ASSERT_TRUE(of_wide);
  const GroupedView wide_view = of_wide->view();
  weight = dense_weight(wide.view());
  weight.groups = &wide_view;
  EXPECT_EQ(std::string(choose(ctx, LinearFwd{.x = x.view(), .w = weight, .y = y.mut()}).name).find("groups"),
            std::string::npos);
}

// A matrix of zeros, whole or but for a few rows: what it has is found, and nothing is read past it.
TEST(LinearGrouped, RowsOfZeros) {
  for (const bool all : {false, true}) {
    TestTensor x(DType::bf16, {3, 70}, 1), w(DType::bf16, {64, 70}, 2), bias(DType::f32, {64}, 3),
        y(DType::f32, {3, 64}, 4), want(DType::f32, {3, 64}, 5);
    for (int64_t i = 0; i < 64 * 70; ++i) {
      if (all || i / 70 % 2 == 0 || i % 70 % 7 != 0) set_element(w.mut(), i, 0);
    }
    Weight weight = dense_weight(w.view());
    const auto groups = find_groups(weight, 0.5);
    ASSERT_TRUE(groups);
    const GroupedView view = groups->view();
    weight.groups = &view;
    Arena arena;
    Ctx ctx{.arena = arena};
    const LinearFwd op{.x = x.view(), .w = weight, .bias = bias.view(), .y = y.mut()};
    EXPECT_STREQ(choose(ctx, op).name, "groups_bf16");
    run(ctx, op);
    LinearFwd reference = op;
    reference.y = want.mut();
    run_row(ctx, reference, row_named<LinearFwd>("ref"));
    for (int64_t i = 0; i < 3 * 64; ++i) EXPECT_NEAR(element(y.view(), i), element(want.view(), i), 1e-5) << i;
    EXPECT_EQ(weight.product_values() == 0, all);
  }
}

// FP32 weights would be rounded in the class that BF16 activations name.
TEST(LinearGrouped, WeightsAreNotRounded) {
  TestTensor x(DType::bf16, {2, 96}, 1), w(DType::f32, {64, 96}, 2), y(DType::f32, {2, 64}, 4);
  zero_in_groups(w);
  const Weight weight = dense_weight(w.view());
  const auto groups = find_groups(weight, 0.5);
  ASSERT_TRUE(groups);
  Arena arena;
  const Ctx ctx{.arena = arena};
  EXPECT_STREQ(choose(ctx, LinearGroupedFwd{.x = x.view(), .w = weight, .groups = groups->view(), .y = y.mut()}).name,
               "ref");
}

}  // namespace
}  // namespace braid
