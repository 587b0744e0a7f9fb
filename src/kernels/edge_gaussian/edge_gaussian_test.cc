// Tolerances: an FP32 exponential of a short sum, 2e-6 of the root mean square; gradients over thousands of edges 2e-5.
#include "kernels/edge_gaussian/edge_gaussian.h"

#include <cmath>
#include <numeric>

#include "core/op_sweep.h"
#include "core/ref.h"
#include "kernels/edge_gaussian/edge_gaussian_ref.h"
#include "sys/parallel.h"

namespace braid {
namespace {

struct Problem {
  TestTensor u, mu, sigma, w, dw, dmu, dsigma;
  Problem(int64_t edges, int64_t kernels, int64_t dims)
      : u(DType::f32, {edges, dims}, 1),
        mu(DType::f32, {kernels, dims}, 2),
        sigma(DType::f32, {kernels, dims}, 3, 0.3, 1.2),
        w(DType::f32, {edges, kernels}, 4),
        dw(DType::f32, {edges, kernels}, 5),
        dmu(DType::f32, {kernels, dims}, 6),
        dsigma(DType::f32, {kernels, dims}, 7) {}
  EdgeGaussianFwd forward() { return {.u = u.view(), .mu = mu.view(), .sigma = sigma.view(), .w = w.mut()}; }
  EdgeGaussianBwd backward() {
    return {.dw = dw.view(),
            .w = w.view(),
            .u = u.view(),
            .mu = mu.view(),
            .sigma = sigma.view(),
            .dmu = dmu.mut(),
            .dsigma = dsigma.mut()};
  }
};

TEST(EdgeGaussian, EveryRowAgreesWithTheReference) {
  for (const int64_t edges : {1, 7, 100, 3000}) {
    for (const int64_t kernels : {1, 3}) {
      for (const int64_t dims : {1, 2, 5}) {
        Problem p(edges, kernels, dims);
        sweep(p.forward(), 5e-6);
        Arena arena;
        Ctx ctx{.arena = arena};
        run(ctx, p.forward());
        sweep(p.backward(), 2e-5);
      }
    }
  }
}

// Large enough that threads share blocks of edges, of which the last is short: a team changes no bit.
TEST(EdgeGaussian, LargeProblemsAreSharedByThreads) {
  Problem p(30001, 3, 2);
  ASSERT_EQ(sys::team_for(3, p.backward().flops()), 3);
  sweep(p.forward(), 5e-6);
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, p.forward());
  sweep(p.backward(), 2e-5);
}

TEST(EdgeGaussian, BackwardIsTheDerivative) {
  Problem p(6, 2, 3);
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, p.forward());
  fill(p.dmu.mut(), 0);
  fill(p.dsigma.mut(), 0);
  run(ctx, p.backward());
  const std::vector<double> u = to_doubles(p.u.view()), dw = to_doubles(p.dw.view());
  std::vector<double> inputs = to_doubles(p.mu.view());
  for (const double s : to_doubles(p.sigma.view())) inputs.push_back(s);
  const auto gradient = complex_step(inputs, [&](const std::vector<std::complex<double>>& z) {
    std::vector<std::complex<double>> w(12);
    edge_gaussian_ref<std::complex<double>>(3, 2, u, {z.begin(), z.begin() + 6}, {z.begin() + 6, z.end()}, w);
    return std::inner_product(w.begin(), w.end(), dw.begin(), std::complex<double>(0));
  });
  for (int64_t i = 0; i < 6; ++i) {
    EXPECT_NEAR(element(p.dmu.view(), i), gradient[static_cast<size_t>(i)], 1e-5);
    EXPECT_NEAR(element(p.dsigma.view(), i), gradient[static_cast<size_t>(6 + i)], 1e-5);
  }
}

TEST(EdgeGaussian, NanIsSeen) {
  Problem p(20, 3, 2);
  set_element(p.mu.mut(), 3, NAN);  // of kernel 1
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, p.forward());
  for (int64_t i = 0; i < 60; ++i) EXPECT_EQ(std::isnan(element(p.w.view(), i)), i % 3 == 1) << i;
}

// Columns of wider tensors: whichever row runs them gives what it gives for dense ones.
TEST(EdgeGaussian, StridedViewsAreReadByTheirStrides) {
  Problem p(40, 3, 2);
  TestTensor wide_u(DType::f32, {40, 5}, 8), wide_dw(DType::f32, {40, 4}, 9);
  EdgeGaussianBwd op = p.backward();
  op.u = wide_u.view().slice(1, 1, 2);
  op.dw = wide_dw.view().slice(1, 1, 3);
  for (int64_t i = 0; i < p.u.view().count(); ++i) set_element(p.u.mut(), i, element(op.u, i));
  for (int64_t i = 0; i < p.dw.view().count(); ++i) set_element(p.dw.mut(), i, element(op.dw, i));
  TestTensor dmu = p.dmu, dsigma = p.dsigma;
  op.dmu = dmu.mut(), op.dsigma = dsigma.mut();
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, p.backward());
  run(ctx, op);
  for (int64_t i = 0; i < 6; ++i) {
    EXPECT_NEAR(element(dmu.view(), i), element(p.dmu.view(), i), 1e-5) << i;
    EXPECT_NEAR(element(dsigma.view(), i), element(p.dsigma.view(), i), 1e-5) << i;
  }
}

}  // namespace
}  // namespace braid
