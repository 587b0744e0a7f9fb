// Tolerances: a few FP32 operations and one exp against FP64, 2e-6 of the root mean square, 1e-5 of
// slopes (the logistic's argument is cubic in GELU); BF16 outputs 1/64.
#include "kernels/act/act.h"

#include "core/op_sweep.h"
#include "core/ref.h"
#include "kernels/act/act_ref.h"

namespace braid {
namespace {

struct Case {
  int64_t tokens, width;
  DType x, y;
  bool gate;
};
constexpr Act kActs[] = {Act::relu2, Act::silu, Act::gelu_tanh, Act::gelu, Act::relu, Act::elu};
constexpr Case kCases[] = {{1, 1856, DType::f32, DType::f32, false},
                           {5, 58, DType::f32, DType::f32, true},
                           {3, 96, DType::f32, DType::bf16, true},
                           {6, 17, DType::bf16, DType::bf16, false},
                           {2, 1, DType::bf16, DType::f32, true}};

TEST(Act, EveryRowAgreesWithTheReference) {
  for (const Act kind : kActs) {
    for (const Case& c : kCases) {
      TestTensor x(c.x, {c.tokens, c.width}, 1, 3), gate(c.x, {c.tokens, c.width}, 2, 3),
          y(c.y, {c.tokens, c.width}, 3);
      sweep(ActFwd{.x = x.view(), .gate = c.gate ? gate.view() : View(), .y = y.mut(), .kind = kind},
            c.y == DType::bf16 ? 4e-2 : 2e-6);
    }
  }
}

TEST(Act, EveryBackwardRowAgreesWithTheReference) {
  for (const Act kind : kActs) {
    for (const Case& c : kCases) {
      for (const DType dy_type : {DType::f32, DType::bf16}) {
        TestTensor dy(dy_type, {c.tokens, c.width}, 6), x(c.x, {c.tokens, c.width}, 1, 3),
            gate(c.x, {c.tokens, c.width}, 2, 3), dx(c.y, {c.tokens, c.width}, 3), dgate(c.y, {c.tokens, c.width}, 4);
        sweep(ActBwd{.dy = dy.view(),
                     .x = x.view(),
                     .gate = c.gate ? gate.view() : View(),
                     .dx = dx.mut(),
                     .dgate = c.gate ? dgate.mut() : MutView(),
                     .kind = kind},
              c.y == DType::bf16 ? 4e-2 : 1e-5);
      }
    }
  }
}

// dL/dx and dL/dgate of L = sum(dy * y) by complex step on the forward reference.
TEST(Act, BackwardIsTheDerivative) {
  const int64_t n = 8;
  TestTensor x(DType::f32, {1, n}, 1, 2), gate(DType::f32, {1, n}, 2, 2), dy(DType::f32, {1, n}, 3);
  const std::vector<double> weights = to_doubles(dy.view());
  std::vector<double> inputs = to_doubles(x.view());
  for (double value : to_doubles(gate.view())) inputs.push_back(value);
  for (const Act kind : kActs) {
    for (const bool gated : {false, true}) {
      const auto gradient = complex_step(inputs, [&](const std::vector<std::complex<double>>& p) {
        std::complex<double> loss = 0;
        for (size_t i = 0; i < 8; ++i)
          loss += weights[i] * (gated ? act_ref(kind, p[i + 8]) * p[i] : act_ref(kind, p[i]));
        return loss;
      });
      TestTensor dx(DType::f32, {1, n}, 4), dgate(DType::f32, {1, n}, 5);
      Arena arena;
      Ctx ctx{.arena = arena};
      run(ctx, ActBwd{.dy = dy.view(),
                      .x = x.view(),
                      .gate = gated ? gate.view() : View(),
                      .dx = dx.mut(),
                      .dgate = gated ? dgate.mut() : MutView(),
                      .kind = kind});
      for (int64_t i = 0; i < n; ++i) {
        EXPECT_NEAR(element(dx.view(), i), gradient[static_cast<size_t>(i)], 1e-5);
        if (!gated) continue;
        EXPECT_NEAR(element(dgate.view(), i), gradient[static_cast<size_t>(i + n)], 1e-5);
      }
    }
  }
}

// Far out nothing overflows into NaN: act(-100) is 0, act(100) is 100, relu2(100) is 10000.
TEST(Act, TailsAreFlatOrStraight) {
  for (const Act kind : {Act::relu2, Act::silu, Act::gelu_tanh, Act::gelu}) {
    const std::vector<float> x = {-1e4f, -100, 0, 100, 1e4f};
    std::vector<float> y(5);
    Arena arena;
    Ctx ctx{.arena = arena};
    run(ctx, ActFwd{.x = view_of(x.data(), {1, 5}), .y = mut_view_of(y.data(), {1, 5}), .kind = kind});
    for (size_t i = 0; i < 5; ++i) {
      const float positive = std::max(x[i], 0.0f);
      EXPECT_NEAR(y[i], kind == Act::relu2 ? positive * positive : positive, 1e-30f) << i;
    }
  }
}

// Slopes far out are 0 and 1, or 2 x.
TEST(Act, SlopesOfTheTailsAreFlat) {
  for (const Act kind : {Act::relu2, Act::silu, Act::gelu_tanh, Act::gelu}) {
    const std::vector<float> x = {-1e30f, -1e4f, -100, 100, 1e4f, 1e15f}, dy(6, 1);
    std::vector<float> dx(6);
    Arena arena;
    Ctx ctx{.arena = arena};
    run(ctx, ActBwd{.dy = view_of(dy.data(), {1, 6}),
                    .x = view_of(x.data(), {1, 6}),
                    .dx = mut_view_of(dx.data(), {1, 6}),
                    .kind = kind});
    for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(dx[i], x[i] < 0 ? 0 : kind == Act::relu2 ? 2 * x[i] : 1, 1e-30f) << i;
  }
}

// ReLU and ELU are exact above 0; ELU goes to -1 below, and keeps its digits near 0.
TEST(Act, ReluAndEluBelowZero) {
  const std::vector<float> x = {-1e30f, -100, -1, -1e-4f, 0, 1e-4f, 3, 1e30f}, dy(8, 1);
  for (const Act kind : {Act::relu, Act::elu}) {
    std::vector<float> y(8), dx(8);
    Arena arena;
    Ctx ctx{.arena = arena};
    run(ctx, ActFwd{.x = view_of(x.data(), {1, 8}), .y = mut_view_of(y.data(), {1, 8}), .kind = kind});
    run(ctx, ActBwd{.dy = view_of(dy.data(), {1, 8}),
                    .x = view_of(x.data(), {1, 8}),
                    .dx = mut_view_of(dx.data(), {1, 8}),
                    .kind = kind});
    for (size_t i = 0; i < 8; ++i) {
      const bool below = x[i] <= 0, elu = kind == Act::elu;
      const float want = !below ? x[i] : elu ? std::expm1(x[i]) : 0;
      EXPECT_NEAR(y[i], want, 1e-6f * std::fabs(want)) << i;
      EXPECT_NEAR(dx[i], !below ? 1 : elu ? std::exp(x[i]) : 0, 1e-6f) << i;
    }
  }
}

// A failed run must be visible: NaN reaches every result that depends on it and no other, in every row.
TEST(Act, NanIsSeen) {
  const int64_t width = 37;
  for (const Act kind : kActs) {
    for (const bool gated : {false, true}) {
      for (const int64_t at : {int64_t{3}, width - 1}) {  // in a whole vector and in the remainder
        for (int bad = 0; bad < (gated ? 3 : 2); ++bad) {
          TestTensor x(DType::f32, {1, width}, 1), dy(DType::f32, {1, width}, 2), gate(DType::f32, {1, width}, 3),
              y(DType::f32, {1, width}, 4), dx = y, dgate = y;
          set_element((bad == 0 ? x : bad == 1 ? dy : gate).mut(), at, NAN);
          Arena arena;
          Ctx ctx{.arena = arena};
          const View gates = gated ? gate.view() : View();
          const auto expect = [&](const char* row, const char* what, const View& got, bool seen) {
            for (int64_t i = 0; i < width; ++i)
              EXPECT_EQ(std::isnan(element(got, i)), seen && i == at)
                  << row << " " << what << " " << i << " kind " << static_cast<int>(kind) << " bad " << bad;
          };
          for (const Row<ActFwd>& row : ActFwd::rows()) {
            run_row(ctx, ActFwd{.x = x.view(), .gate = gates, .y = y.mut(), .kind = kind}, row);
            expect(row.name, "y", y.view(), bad != 1);
          }
          for (const Row<ActBwd>& row : ActBwd::rows()) {
            run_row(ctx,
                    ActBwd{.dy = dy.view(),
                           .x = x.view(),
                           .gate = gates,
                           .dx = dx.mut(),
                           .dgate = gated ? dgate.mut() : MutView(),
                           .kind = kind},
                    row);
            expect(row.name, "dx", dx.view(), !gated || bad != 0);
            if (gated) expect(row.name, "dgate", dgate.view(), true);
          }
        }
      }
    }
  }
}

TEST(Act, GateAndUpMayBeHalvesOfOneProjection) {
  TestTensor fused(DType::f32, {3, 100}, 1), y(DType::f32, {3, 50}, 2);
  sweep(
      ActFwd{.x = fused.view().slice(1, 50, 50), .gate = fused.view().slice(1, 0, 50), .y = y.mut(), .kind = Act::silu},
      2e-6);
}

TEST(Act, GradientsMayBeHalvesOfAFusedProjection) {
  TestTensor fused(DType::f32, {3, 100}, 1), dy(DType::f32, {3, 50}, 2), dfused(DType::f32, {3, 100}, 3),
      dx(DType::f32, {3, 50}, 4), dgate = dx;
  ActBwd op{.dy = dy.view(),
            .x = fused.view().slice(1, 50, 50),
            .gate = fused.view().slice(1, 0, 50),
            .dx = dfused.mut().slice(1, 50, 50),
            .dgate = dfused.mut().slice(1, 0, 50),
            .kind = Act::silu};
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, op);
  op.dx = dx.mut();
  op.dgate = dgate.mut();
  run(ctx, op);
  for (int64_t t = 0; t < 3; ++t) {
    for (int64_t i = 0; i < 50; ++i) {
      EXPECT_EQ(element(dfused.view(), t * 100 + i), element(dgate.view(), t * 50 + i));
      EXPECT_EQ(element(dfused.view(), t * 100 + 50 + i), element(dx.view(), t * 50 + i));
    }
  }
}

}  // namespace
}  // namespace braid
