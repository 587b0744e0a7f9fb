// Against FP64 to 5e-4 of the root mean square: five steps enlarge small singular values, and their roundings, up to
// 500 times. BF16 copies to 1/32.
#include "kernels/muon/muon.h"

#include "core/op_sweep.h"

namespace braid {
namespace {

struct Problem {
  TestTensor g, w, m, working;
  MuonStep op;
  Problem(int64_t rows, int64_t cols, bool copy = false)
      : g(DType::f32, {rows, cols}, 1),
        w(DType::f32, {rows, cols}, 2, 0.1),
        m(DType::f32, {rows, cols}, 3, 0.5),
        working(DType::bf16, {rows, cols}, 4) {
    op = {.g = g.view(),
          .w = w.mut(),
          .m = m.mut(),
          .working = copy ? working.mut() : MutView(),
          .lr = 0.1,
          .weight_decay = 0.1,
          .scale = 2,
          .grad_scale = 0.5};
  }
};

TEST(Muon, EveryRowAgreesWithTheReference) {
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>{1, 1}, {1, 9}, {33, 20}, {20, 33}, {58, 58}, {200, 150}}) {
    Problem p(rows, cols);
    sweep(p.op, 5e-4);
    p.op.nesterov = false;
    sweep(p.op, 5e-4);
  }
  sweep(Problem(24, 70, true).op, 0.03);
}

// Sides with different depth blocks: the shorter side has the longer one.
TEST(Muon, TeamsChangeNoBitOfALargeMatrix) {
  Problem one(448, 800), three(448, 800);
  Arena arena;
  Ctx ctx{.arena = arena, .threads = 1};
  run(ctx, one.op);
  ctx.threads = 3;
  run(ctx, three.op);
  EXPECT_EQ(one.w.bytes, three.w.bytes);
  EXPECT_EQ(one.m.bytes, three.m.bytes);
}

// A diagonal matrix stays diagonal, and each entry follows the polynomial.
TEST(Muon, SingularValuesComeNearOne) {
  const std::vector<double> values{1, 0.3, 0.1, 0.03, 0.015};
  const auto n = static_cast<int64_t>(values.size());
  std::vector<float> g(25), w(25), m(25);
  double norm = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    g[i * 6] = static_cast<float>(values[i]);
    norm += values[i] * values[i];
  }
  for (const auto& row : MuonStep::rows()) {
    std::fill(w.begin(), w.end(), 0.0f);
    std::fill(m.begin(), m.end(), 0.0f);
    Arena arena;
    Ctx ctx{.arena = arena};
    ctx.forced_rows = {{"muon_step", row.name}};
    run(ctx, MuonStep{.g = view_of(g.data(), {n, n}),
                      .w = mut_view_of(w.data(), {n, n}),
                      .m = mut_view_of(m.data(), {n, n}),
                      .lr = 1});
    for (size_t i = 0; i < values.size(); ++i) {
      double s = values[i] / std::sqrt(norm);
      for (int64_t step = 0; step < MuonStep::kSteps; ++step)
        s = MuonStep::kA * s + MuonStep::kB * std::pow(s, 3) + MuonStep::kC * std::pow(s, 5);
      EXPECT_NEAR(-w[i * 6], s, 1e-4) << row.name;
      EXPECT_GT(-w[i * 6], 0.68) << row.name;
      EXPECT_LT(-w[i * 6], 1.14) << row.name;
      for (size_t j = 0; j < values.size(); ++j) {
        EXPECT_TRUE(j == i || w[i * 5 + j] == 0) << row.name;
      }
    }
  }
}

// A part of a fused matrix is a view of its rows.
TEST(Muon, PartsOfAFusedMatrixStandAlone) {
  Problem fused(30, 12), alone(30, 12);
  for (TestTensor* t : {&fused.w, &fused.m}) ASSERT_FALSE(t->bytes.empty());
  MuonStep part = fused.op;
  part.g = fused.g.view().slice(0, 10, 20);
  part.w = fused.w.mut().slice(0, 10, 20);
  part.m = fused.m.mut().slice(0, 10, 20);
  sweep(part, 5e-4);
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, part);
  EXPECT_TRUE(std::equal(fused.w.bytes.begin(), fused.w.bytes.begin() + 10 * 12 * 4, alone.w.bytes.begin()));
}

TEST(Muon, AZeroGradientMovesNothing) {
  std::vector<float> zeros(12), w(12, 2), m(12);
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, MuonStep{.g = view_of(zeros.data(), {3, 4}),
                    .w = mut_view_of(w.data(), {3, 4}),
                    .m = mut_view_of(m.data(), {3, 4}),
                    .lr = 0.5});
  EXPECT_EQ(w, std::vector<float>(12, 2));
}

}  // namespace
}  // namespace braid
