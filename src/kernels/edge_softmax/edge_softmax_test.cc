// Tolerances: FP32 exponentials over sums of up to 5000 of them in order, 4e-5 of the root mean square.
#include "kernels/edge_softmax/edge_softmax.h"

#include <array>
#include <cmath>
#include <numeric>

#include "core/op_sweep.h"
#include "core/ref.h"
#include "kernels/edge_softmax/edge_softmax_ref.h"
#include "sys/parallel.h"

namespace braid {
namespace {

struct Problem {
  std::vector<int64_t> rowptr;
  TestTensor x, y, dy, dx;
  Problem(std::vector<int64_t> rows, int64_t heads)
      : rowptr(std::move(rows)),
        x(DType::f32, {rowptr.back(), heads}, 1),
        y(DType::f32, {rowptr.back(), heads}, 2),
        dy(DType::f32, {rowptr.back(), heads}, 3),
        dx(DType::f32, {rowptr.back(), heads}, 4) {}
  View rows() const { return view_of(rowptr.data(), {std::ssize(rowptr)}); }
  EdgeSoftmaxFwd forward() { return {.rowptr = rows(), .x = x.view(), .y = y.mut()}; }
  EdgeSoftmaxBwd backward() {
    return {.rowptr = rows(), .x = x.view(), .y = y.view(), .dy = dy.view(), .dx = dx.mut()};
  }
};

TEST(EdgeSoftmax, EveryRowAgreesWithTheReference) {
  for (const std::vector<int64_t>& rows : {std::vector<int64_t>{0, 0, 3, 4, 9, 9}, {0, 1}, {0, 5000, 5017}}) {
    for (const int64_t heads : {1, 3, 8}) {
      Problem p(rows, heads);
      sweep(p.forward(), 4e-5);
      Arena arena;
      Ctx ctx{.arena = arena};
      run(ctx, p.forward());
      sweep(p.backward(), 4e-5);
    }
  }
}

// Large enough that threads share rows: a team changes no bit.
TEST(EdgeSoftmax, LargeProblemsAreSharedByThreads) {
  std::vector<int64_t> rows = {0};
  for (int64_t i = 0; i < 4000; ++i) rows.push_back(rows.back() + i % 11);
  Problem p(rows, 8);
  ASSERT_EQ(sys::team_for(3, p.backward().flops()), 3);
  sweep(p.forward(), 4e-5);
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, p.forward());
  sweep(p.backward(), 4e-5);
}

// Columns of wider tensors: whichever row runs them gives what it gives for dense ones.
TEST(EdgeSoftmax, StridedViewsAreReadByTheirStrides) {
  Problem p({0, 3, 3, 9}, 2);
  TestTensor wide_x(DType::f32, {9, 5}, 6), wide_y(DType::f32, {9, 5}, 7), wide_dy(DType::f32, {9, 5}, 8), dx = p.dx;
  const auto columns = [](const TestTensor& wide) { return wide.view().slice(1, 1, 2); };
  const auto copy = [&](const TestTensor& wide, TestTensor& to) {
    for (int64_t i = 0; i < 18; ++i) set_element(to.mut(), i, element(columns(wide), i));
  };
  copy(wide_x, p.x), copy(wide_y, p.y), copy(wide_dy, p.dy);
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, p.backward());
  run(ctx, EdgeSoftmaxBwd{
               .rowptr = p.rows(), .x = columns(wide_x), .y = columns(wide_y), .dy = columns(wide_dy), .dx = dx.mut()});
  for (int64_t i = 0; i < 18; ++i) EXPECT_NEAR(element(dx.view(), i), element(p.dx.view(), i), 1e-6) << i;
}

// What is larger than an exponential can be is subtracted first.
TEST(EdgeSoftmax, LargeScoresAreNoOverflow) {
  Problem p({0, 2}, 1);
  p.x.mut().as<float>()[0] = 1000;
  p.x.mut().as<float>()[1] = 999;
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, p.forward());
  EXPECT_NEAR(element(p.y.view(), 0), 1 / (1 + std::exp(-1.0)), 1e-6);
}

TEST(EdgeSoftmax, BackwardIsTheDerivative) {
  Problem p({0, 0, 3, 4, 9, 9}, 2);
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, p.forward());
  run(ctx, p.backward());
  const std::vector<double> dy = to_doubles(p.dy.view());
  const auto gradient = complex_step(to_doubles(p.x.view()), [&](const std::vector<std::complex<double>>& z) {
    std::vector<std::complex<double>> y(18);
    edge_softmax_ref(p.rows(), 2, 0.2f, z, y);
    return std::inner_product(y.begin(), y.end(), dy.begin(), std::complex<double>(0));
  });
  for (int64_t i = 0; i < 18; ++i) EXPECT_NEAR(element(p.dx.view(), i), gradient[static_cast<size_t>(i)], 1e-6);
}

// Wherever it is, and whatever exceeds the scores after it.
TEST(EdgeSoftmax, NanIsSeen) {
  for (const auto& scores : {std::array<float, 3>{NAN, 1, 2}, {200, NAN, 1}, {1, 2, NAN}}) {
    Problem p({0, 3, 6}, 1);
    for (int64_t i = 0; i < 3; ++i) set_element(p.x.mut(), i, scores[static_cast<size_t>(i)]);
    Arena arena;
    Ctx ctx{.arena = arena};
    run(ctx, p.forward());
    for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(std::isnan(element(p.y.view(), i)), i < 3) << scores[0] << " " << i;
  }
}

}  // namespace
}  // namespace braid
