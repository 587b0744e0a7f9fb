// Tolerances, relative to the root mean square: without encodings FP32 2e-5, and BF16 0.1 (hidden rows are rounded).
// With them a sum near a rounding threshold may round the other way: FP8 0.15, NVFP4 0.6. No team and no row ever
// changes a bit; tests in nn check that the formulas are those of kernels/experts.
#include "kernels/quantize/low_experts.h"

#include <vector>

#include "core/op_sweep.h"

namespace braid {
namespace {

constexpr ProductSpecs kFp8{.forward_x = {Encoding::fp8_e4m3, Scaling::matrix},
                            .forward_w = {Encoding::fp8_e4m3, Scaling::matrix},
                            .data_dy = {Encoding::fp8_e5m2, Scaling::matrix},
                            .data_w = {Encoding::fp8_e4m3, Scaling::matrix},
                            .weight_dy = {Encoding::fp8_e5m2, Scaling::matrix},
                            .weight_x = {Encoding::fp8_e4m3, Scaling::matrix}};
constexpr ProductSpecs kNvfp4{.forward_x = {Encoding::nvfp4, Scaling::along_cols},
                              .forward_w = {Encoding::nvfp4, Scaling::square},
                              .data_dy = {Encoding::nvfp4, Scaling::along_cols, false, true},
                              .data_w = {Encoding::nvfp4, Scaling::square},
                              .weight_dy = {Encoding::nvfp4, Scaling::along_rows, true, true},
                              .weight_x = {Encoding::nvfp4, Scaling::along_rows, true}};

// `tokens` rows of R, `count` experts of width F of which the last is never chosen.
struct Problem {
  int64_t tokens, count, hidden, width;
  TestTensor x, weights, dy, y, dx, dweights;
  std::vector<TestTensor> values{};
  std::vector<Weight> up{}, gate{}, down{};
  std::vector<MutView> dup{}, dgate{}, ddown{};
  std::vector<int32_t> chosen{};

  Problem(int64_t t, int64_t e, int64_t f, int64_t r, DType type, bool gated)
      : tokens(t),
        count(e),
        hidden(f),
        width(r),
        x(type, {t, r}, 1),
        weights(DType::f32, {t, 2}, 2, 0.2, 0.5),
        dy(DType::f32, {t, r}, 3),
        y(DType::f32, {t, r}, 4),
        dx(DType::f32, {t, r}, 5),
        dweights(DType::f32, {t, 2}, 6) {
    values.reserve(static_cast<size_t>(6 * e));
    const double scale = 1 / std::sqrt(static_cast<double>(r));
    const auto matrix = [&](DType dtype, int64_t rows, int64_t cols) -> TestTensor& {
      return values.emplace_back(dtype, Shape{rows, cols}, 10 + values.size(), scale);
    };
    for (int64_t i = 0; i < e; ++i) {
      up.push_back(dense_weight(matrix(type, f, r).view()));
      down.push_back(dense_weight(matrix(type, r, f).view()));
      if (gated) gate.push_back(dense_weight(matrix(type, f, r).view()));
      dup.push_back(matrix(DType::f32, f, r).mut());
      ddown.push_back(matrix(DType::f32, r, f).mut());
      if (gated) dgate.push_back(matrix(DType::f32, f, r).mut());
    }
    for (int64_t i = 0; i < t; ++i) {
      chosen.push_back(static_cast<int32_t>(i % (e - 1)));
      chosen.push_back(static_cast<int32_t>((i * 3 + 1) % (e - 1)));
      if (chosen.back() == chosen[chosen.size() - 2])
        chosen.back() = static_cast<int32_t>((chosen.back() + 1) % (e - 1));
    }
  }
  View experts() const { return view_of(chosen.data(), {tokens, 2}); }
  LowExpertsFwd forward(const ProductSpecs& specs, bool silu) {
    return {.x = x.view(),
            .experts = experts(),
            .weights = weights.view(),
            .up = up,
            .gate = gate,
            .down = down,
            .y = y.mut(),
            .specs = specs,
            .silu = silu};
  }
  LowExpertsBwd backward(const ProductSpecs& specs, bool silu) {
    return {.dy = dy.view(),
            .x = x.view(),
            .experts = experts(),
            .weights = weights.view(),
            .up = up,
            .gate = gate,
            .down = down,
            .dx = dx.mut(),
            .dweights = dweights.mut(),
            .dup = dup,
            .dgate = dgate,
            .ddown = ddown,
            .specs = specs,
            .noise = {.seed = 5, .up = 100, .gate = 200, .down = 300},
            .silu = silu};
  }
};

TEST(LowExperts, EveryRowAgreesWithTheReference) {
  struct Arm {
    ProductSpecs specs;
    double tolerance, bf16;
  };
  for (const Arm& arm : {Arm{{}, 2e-5, 0.1}, Arm{kFp8, 0.15, 0.2}, Arm{kNvfp4, 0.6, 0.6}}) {
    for (const DType type : {DType::f32, DType::bf16}) {
      for (const bool gated : {false, true}) {
        Problem p(37, 4, 24, 32, type, gated), odd(5, 3, 17, 19, type, gated);
        for (Problem* problem : {&p, &odd}) {
          sweep(problem->forward(arm.specs, gated), arm.tolerance, arm.bf16);
          sweep(problem->backward(arm.specs, gated), arm.tolerance, arm.bf16);
        }
      }
    }
  }
}

TEST(LowExperts, FrozenOnesReceiveNothing) {
  Problem p(9, 3, 16, 16, DType::f32, false);
  const auto before = p.values;
  LowExpertsBwd op = p.backward(kNvfp4, false);
  op.dup = op.ddown = {};
  sweep(op, 0.6);
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, op);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(before[i].bytes, p.values[i].bytes);
}

// The workspace of a step depends on its size, not on its routes.
TEST(LowExperts, WorkspaceIsForTheMostRows) {
  Problem even(64, 5, 24, 32, DType::bf16, true), skewed(64, 5, 24, 32, DType::bf16, true);
  for (size_t i = 0; i < skewed.chosen.size(); ++i) skewed.chosen[i] = static_cast<int32_t>(i % 2);
  Arena arena;
  const Ctx ctx{.arena = arena};
  const LowExpertsBwd a = even.backward(kNvfp4, true), b = skewed.backward(kNvfp4, true);
  EXPECT_EQ(choose(ctx, a).workspace(a, 3), choose(ctx, b).workspace(b, 3));
  sweep(b, 0.6, 0.6);
}

TEST(LowExpertsDeathTest, AnInvalidExpertIndexIsABug) {
  Problem p(3, 3, 16, 16, DType::f32, false);
  p.chosen[2] = 3;
  Arena arena;
  Ctx ctx{.arena = arena};
  EXPECT_DEATH(run(ctx, p.forward({}, false)), "token 1 has expert 3 of 3");
}

}  // namespace
}  // namespace braid
