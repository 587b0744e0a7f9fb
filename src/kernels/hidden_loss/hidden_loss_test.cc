// FP64 sums rounded once: 1e-6 of the root mean square.
#include "kernels/hidden_loss/hidden_loss.h"

#include <complex>
#include <vector>

#include "core/op_sweep.h"
#include "core/ref.h"
#include "kernels/hidden_loss/hidden_loss_ref.h"

namespace braid {
namespace {

struct States {
  TestTensor x, y, weight, loss, dx;
  States(int64_t tokens, int64_t width)
      : x(DType::f32, {tokens, width}, 1),
        y(DType::f32, {tokens, width}, 2),
        weight(DType::f32, {tokens}, 3, 0.5, 1),
        loss(DType::f32, {tokens}, 4),
        dx(DType::f32, {tokens, width}, 5) {}
  HiddenLoss op() {
    return {.x = x.view(), .y = y.view(), .token_weight = weight.view(), .loss = loss.mut(), .dx = dx.mut()};
  }
};

TEST(HiddenLoss, EveryRowAgreesWithTheReference) {
  for (const int64_t width : {1, 7, 48, 2688}) sweep(States(37, width).op(), 1e-6);
}

TEST(HiddenLoss, RowsMayBeColumnsOfWiderOnes) {
  TestTensor wide(DType::f32, {3, 40}, 1);
  States s(3, 15);
  HiddenLoss op = s.op();
  op.x = wide.view().slice(1, 4, 15);
  op.y = wide.view().slice(1, 21, 15);
  sweep(op, 1e-6);
}

TEST(HiddenLoss, GradientIsTheDerivativeOfTheLoss) {
  States s(3, 5);
  const std::vector<double> x = to_doubles(s.x.view()), y = to_doubles(s.y.view()),
                            weight = to_doubles(s.weight.view());
  using Complex = std::complex<double>;
  const auto gradient = complex_step(x, [&](const std::vector<Complex>& p) {
    Complex total = 0;
    for (std::ptrdiff_t t = 0; t < 3; ++t) {
      const std::vector<Complex> row(p.begin() + 5 * t, p.begin() + 5 * (t + 1));
      const std::vector<double> taught(y.begin() + 5 * t, y.begin() + 5 * (t + 1));
      total += weight[static_cast<size_t>(t)] * hidden_loss_ref(row, taught);
    }
    return total;
  });
  for (const Row<HiddenLoss>& row : HiddenLoss::rows()) {
    Arena arena;
    Ctx ctx{.arena = arena};
    const HiddenLoss op = s.op();
    run_row(ctx, op, row);
    for (size_t i = 0; i < gradient.size(); ++i)
      EXPECT_NEAR(element(op.dx, static_cast<int64_t>(i)), gradient[i], 1e-6) << row.name;
  }
}

TEST(HiddenLoss, ScaleIsIgnoredAndZerosHaveNoDirection) {
  States s(4, 3);
  for (int64_t i = 0; i < 3; ++i) {
    set_element(s.y.mut(), i, 3 * element(s.x.view(), i));           // the same direction
    set_element(s.y.mut(), 3 + i, -2 * element(s.x.view(), 3 + i));  // the opposite one
    set_element(s.x.mut(), 6 + i, 0);
    set_element(s.y.mut(), 9 + i, 0);
  }
  for (const Row<HiddenLoss>& row : HiddenLoss::rows()) {
    Arena arena;
    Ctx ctx{.arena = arena};
    const HiddenLoss op = s.op();
    run_row(ctx, op, row);
    for (int64_t t = 0; t < 4; ++t) {
      EXPECT_NEAR(element(op.loss, t), t == 0 ? 0.0 : t == 1 ? 2.0 : 1.0, 1e-6) << row.name << t;
      for (int64_t i = 0; i < 3; ++i) EXPECT_NEAR(element(op.dx, 3 * t + i), 0, 1e-6) << row.name << t;
    }
  }
}

}  // namespace
}  // namespace braid
