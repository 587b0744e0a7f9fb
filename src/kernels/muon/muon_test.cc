// Orthogonalisation against FP64 to 5e-4 of the root mean square: five steps enlarge small singular values, and their
// roundings, up to 500 times. BF16 copies to 1/32, the rest of a step to 1e-6.
#include "kernels/muon/muon.h"

#include "core/op_sweep.h"

namespace braid {
namespace {

// The three calls of a step.
struct Problem {
  TestTensor g, w, m, working;
  MuonDirection direction;
  Orthogonalize orthogonalize;
  MuonApply apply;
  Problem(int64_t rows, int64_t cols, bool copy = false)
      : g(DType::f32, {rows, cols}, 1),
        w(DType::f32, {rows, cols}, 2, 0.1),
        m(DType::f32, {rows, cols}, 3, 0.5),
        working(DType::bf16, {rows, cols}, 4) {
    direction = {.g = g.mut(), .m = m.mut(), .grad_scale = 0.5};
    orthogonalize = {.x = g.mut()};
    apply = {.x = g.view(),
             .w = w.mut(),
             .working = copy ? working.mut() : MutView(),
             .lr = 0.1,
             .weight_decay = 0.1,
             .scale = 2};
  }
};

TEST(Muon, EveryRowAgreesWithTheReference) {
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>{1, 1}, {1, 9}, {33, 20}, {20, 33}, {58, 58}, {200, 150}}) {
    Problem p(rows, cols);
    sweep(p.direction, 1e-6);
    p.direction.nesterov = false;
    sweep(p.direction, 1e-6);
    sweep(p.orthogonalize, 5e-4);
    sweep(p.apply, 1e-6);
  }
  sweep(Problem(24, 70, true).apply, 0.03);
}

// Sides with different depth blocks: the shorter side has the longer one.
TEST(Muon, TeamsChangeNoBitOfALargeMatrix) {
  Problem one(448, 800), three(448, 800);
  Arena arena;
  Ctx ctx{.arena = arena, .threads = 1};
  run(ctx, one.orthogonalize);
  ctx.threads = 3;
  run(ctx, three.orthogonalize);
  EXPECT_EQ(one.g.bytes, three.g.bytes);
}

// A diagonal matrix stays diagonal, and each entry follows the polynomial.
TEST(Muon, SingularValuesComeNearOne) {
  const std::vector<double> values{1, 0.3, 0.1, 0.03, 0.015};
  const auto n = static_cast<int64_t>(values.size());
  double norm = 0;
  for (const double value : values) norm += value * value;
  for (const auto& row : Orthogonalize::rows()) {
    std::vector<float> x(25);
    for (size_t i = 0; i < values.size(); ++i) x[i * 6] = static_cast<float>(values[i]);
    Arena arena;
    Ctx ctx{.arena = arena};
    ctx.forced_rows = {{"orthogonalize", row.name}};
    run(ctx, Orthogonalize{.x = mut_view_of(x.data(), {n, n})});
    for (size_t i = 0; i < values.size(); ++i) {
      double s = values[i] / std::sqrt(norm);
      for (int64_t step = 0; step < Orthogonalize::kSteps; ++step)
        s = Orthogonalize::kA * s + Orthogonalize::kB * std::pow(s, 3) + Orthogonalize::kC * std::pow(s, 5);
      EXPECT_NEAR(x[i * 6], s, 1e-4) << row.name;
      EXPECT_GT(x[i * 6], 0.68) << row.name;
      EXPECT_LT(x[i * 6], 1.14) << row.name;
      for (size_t j = 0; j < values.size(); ++j) {
        EXPECT_TRUE(j == i || x[i * 5 + j] == 0) << row.name;
      }
    }
  }
}

// A part of a fused matrix is a view of its rows.
TEST(Muon, PartsOfAFusedMatrixStandAlone) {
  Problem fused(30, 12), alone(30, 12);
  for (TestTensor* t : {&fused.g, &fused.w, &fused.m}) ASSERT_FALSE(t->bytes.empty());
  const auto part = [](TestTensor& t) { return t.mut().slice(0, 10, 20); };
  MuonDirection direction = fused.direction;
  direction.g = part(fused.g);
  direction.m = part(fused.m);
  sweep(direction, 1e-6);
  MuonApply apply = fused.apply;
  apply.x = part(fused.g);
  apply.w = part(fused.w);
  sweep(apply, 1e-6);
  const Orthogonalize orthogonalize{.x = part(fused.g)};
  sweep(orthogonalize, 5e-4);
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, orthogonalize);
  const auto begins = [](const TestTensor& a, const TestTensor& b) {
    return std::equal(a.bytes.begin(), a.bytes.begin() + 10 * 12 * 4, b.bytes.begin());
  };
  EXPECT_TRUE(begins(fused.g, alone.g));
}

TEST(Muon, AZeroGradientMovesNothing) {
  std::vector<float> zeros(12), w(12, 2), m(12);
  Arena arena;
  Ctx ctx{.arena = arena};
  const MutView g = mut_view_of(zeros.data(), {3, 4});
  run(ctx, MuonDirection{.g = g, .m = mut_view_of(m.data(), {3, 4})});
  run(ctx, Orthogonalize{.x = g});
  run(ctx, MuonApply{.x = g, .w = mut_view_of(w.data(), {3, 4}), .lr = 0.5});
  EXPECT_EQ(w, std::vector<float>(12, 2));
}

}  // namespace
}  // namespace braid
