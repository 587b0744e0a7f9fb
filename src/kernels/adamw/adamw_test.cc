// Against FP64 to 2e-6 of the root mean square: a dozen roundings of FP32; BF16 copies to 1/128.
#include "kernels/adamw/adamw.h"

#include <cstring>

#include "core/op_sweep.h"

namespace braid {
namespace {

struct Problem {
  TestTensor g, w, m, v, working;
  AdamwStep op;
  Problem(int64_t n, bool copy)
      : g(DType::f32, {n}, 1),
        w(DType::f32, {n}, 2),
        m(DType::f32, {n}, 3, 0.1),
        v(DType::f32, {n}, 4, 0),
        working(DType::bf16, {n}, 5) {
    for (int64_t i = 0; i < n; ++i) set_element(v.mut(), i, std::pow(element(m.view(), i), 2));
    op = {.g = g.view(),
          .w = w.mut(),
          .m = m.mut(),
          .v = v.mut(),
          .working = copy ? working.mut() : MutView(),
          .step = 7,
          .lr = 1e-3,
          .beta2 = 0.95,
          .weight_decay = 0.1,
          .grad_scale = 0.5};
  }
};

TEST(Adamw, EveryRowAgreesWithTheReference) {
  for (const int64_t n : {1, 15, 64, 4097, 20011}) {
    sweep(Problem(n, false).op, 2e-6);
    sweep(Problem(n, true).op, 0.03);
  }
}

// Ten steps from w = 1 with gradients 1/2, -1/3, 1/4, ... as PyTorch's AdamW computes them in FP64, in its own order of
// operations: the decay, then the moments, then the step.
TEST(Adamw, FollowsPyTorch) {
  const double lr = 0.1, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.1;
  double w = 1, m = 0, v = 0;
  float w32 = 1, m32 = 0, v32 = 0;
  Arena arena;
  Ctx ctx{.arena = arena};
  for (int64_t step = 1; step <= 10; ++step) {
    const double g = (step % 2 == 0 ? -1.0 : 1.0) / static_cast<double>(step + 1);
    const auto g32 = static_cast<float>(g);
    w *= 1 - lr * decay;
    m += (g - m) * (1 - beta1);
    v = v * beta2 + (1 - beta2) * g * g;
    const double step_size = lr / (1 - std::pow(beta1, static_cast<double>(step)));
    const double divisor = std::sqrt(v) / std::sqrt(1 - std::pow(beta2, static_cast<double>(step))) + eps;
    w -= step_size * m / divisor;
    run(ctx, AdamwStep{.g = view_of(&g32, {1}),
                       .w = mut_view_of(&w32, {1}),
                       .m = mut_view_of(&m32, {1}),
                       .v = mut_view_of(&v32, {1}),
                       .step = step,
                       .lr = lr,
                       .beta1 = beta1,
                       .beta2 = beta2,
                       .eps = eps,
                       .weight_decay = decay});
    EXPECT_NEAR(w32, w, 3e-7) << step;
    if (step > 1) continue;
    EXPECT_NEAR(w32, 0.99 - 0.1, 1e-6);  // the first step is lr against the sign of the gradient
  }
}

TEST(Adamw, ZeroGradientsOnlyDecay) {
  std::vector<float> g(5, 0), w{1, -2, 0, 4, 8}, m(5, 0), v(5, 0);
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, AdamwStep{.g = view_of(g.data(), {5}),
                     .w = mut_view_of(w.data(), {5}),
                     .m = mut_view_of(m.data(), {5}),
                     .v = mut_view_of(v.data(), {5}),
                     .lr = 0.5,
                     .weight_decay = 0.5});
  EXPECT_EQ(w, (std::vector<float>{0.75f, -1.5f, 0, 3, 6}));
}

TEST(SumOfSquares, MatchesFp64OnAnyNumberOfThreads) {
  for (const int64_t n : {0, 1, 7, 1000, 32769, 200003}) {
    const TestTensor g(DType::f32, {n}, 1, 3);
    double want = 0;
    for (int64_t i = 0; i < n; ++i) want += std::pow(element(g.view(), i), 2);
    Arena arena;
    Ctx ctx{.arena = arena, .threads = 1};
    const double one = sum_of_squares(ctx, g.view());
    EXPECT_NEAR(one, want, 1e-12 * want) << n;
    for (const int threads : {2, 3}) {
      ctx.threads = threads;
      EXPECT_EQ(sum_of_squares(ctx, g.view()), one) << n;
    }
  }
}

}  // namespace
}  // namespace braid
