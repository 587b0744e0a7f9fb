// Tolerance: W products in FP32 and one exp against FP64, relative 1e-5; the kept state is exact.
#include "kernels/conv1d/conv1d.h"

#include "core/op_sweep.h"

namespace braid {
namespace {

constexpr double kTolerance = 1e-5;

struct Case {
  std::vector<int64_t> lengths;
  int64_t channels, width;
  DType type = DType::f32;
  bool bias = true, silu = true;
};

struct Problem {
  SeqMap seqs;
  TestTensor x, w, bias, state, y;
  Case shape;
  explicit Problem(const Case& c)
      : seqs(map(c.lengths)),
        x(c.type, {seqs.tokens(), c.channels}, 1),
        w(DType::f32, {c.channels, c.width}, 2, 0.5),
        bias(DType::f32, {c.channels}, 3),
        state(DType::f32, {std::ssize(c.lengths), c.width - 1, c.channels}, 4),
        y(DType::f32, {seqs.tokens(), c.channels}, 5),
        shape(c) {}
  // Slots in reverse: a sequence is not where its state is.
  static SeqMap map(const std::vector<int64_t>& lengths) {
    SeqMap seqs;
    for (int64_t i = 0; i < std::ssize(lengths); ++i)
      seqs.add(lengths[static_cast<size_t>(i)], 0, std::ssize(lengths) - 1 - i);
    return seqs;
  }
  Conv1dFwd op() {
    return {.x = x.view(),
            .w = w.view(),
            .bias = shape.bias ? bias.view() : View(),
            .state = state.mut(),
            .y = y.mut(),
            .seqs = &seqs,
            .silu = shape.silu};
  }
};

void run_here(const Conv1dFwd& op) {
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, op);
}

TEST(Conv1d, EveryRowAgreesWithTheReference) {
  const Case cases[] = {{{5, 0, 1, 2, 3, 40}, 1000, 4},
                        {{1, 1, 1}, 6144, 4},
                        {{7, 2}, 13, 4, DType::bf16},
                        {{9}, 1, 2},
                        {{3, 8}, 77, 3},
                        {{6}, 70, 7, DType::f32, false},
                        {{4, 1}, 520, 4, DType::bf16},
                        {{2}, 33, 4, DType::f32, true, false}};
  for (const Case& c : cases) sweep(Problem(c).op(), kTolerance);
}

TEST(Conv1d, SlicesOfAFusedProjectionNeedNoCopy) {
  Problem p({{5, 3}, 48, 4});
  TestTensor fused(DType::f32, {8, 100}, 9);
  Conv1dFwd op = p.op();
  op.x = fused.view().slice(1, 20, 48);
  sweep(op, kTolerance);
}

// The reference itself, by hand: y of the first token sees the whole state.
TEST(Conv1d, OldestInputMeetsTheFirstTap) {
  Problem p({{1}, 1, 4, DType::f32, true, false});
  const double w[] = {2, 3, 5, 7}, kept[] = {1, 10, 100};
  for (int64_t i = 0; i < 4; ++i) set_element(p.w.mut(), i, w[i]);
  for (int64_t i = 0; i < 3; ++i) set_element(p.state.mut(), i, kept[i]);
  set_element(p.x.mut(), 0, 1000);
  set_element(p.bias.mut(), 0, 0.5);
  run_here(p.op());
  EXPECT_EQ(element(p.y.view(), 0), 2 + 30 + 500 + 7000 + 0.5);
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(element(p.state.view(), i), i < 2 ? kept[i + 1] : 1000);
}

// One call, calls of any length, and token by token: the same bits.
TEST(Conv1d, CutsChangeNoBit) {
  for (DType type : {DType::f32, DType::bf16}) {
    Problem whole({{37}, 130, 4, type});
    run_here(whole.op());
    for (int64_t step : {1, 2, 3, 5, 16}) {
      Problem cut({{37}, 130, 4, type});
      for (int64_t at = 0; at < 37; at += step) {
        const int64_t n = std::min<int64_t>(step, 37 - at);
        const SeqMap part = SeqMap::one(n, at);
        Conv1dFwd op = cut.op();
        op.x = cut.x.view().slice(0, at, n);
        op.y = cut.y.mut().slice(0, at, n);
        op.seqs = &part;
        run_here(op);
      }
      EXPECT_TRUE(cut.y.bytes == whole.y.bytes) << step;
      EXPECT_TRUE(cut.state.bytes == whole.state.bytes) << step;
    }
  }
}

// Far below zero silu is zero, not what an overflowed exp makes of it.
TEST(Conv1d, SiluOfLargeNumbersIsFinite) {
  Problem p({{64}, 40, 4});
  for (int64_t i = 0; i < p.x.view().count(); ++i) set_element(p.x.mut(), i, 400 * element(p.x.view(), i));
  sweep(p.op(), kTolerance);
}

TEST(Conv1d, PublishedShapesHaveAFastRow) {
  Arena arena;
  const Ctx ctx{.arena = arena};
  for (int64_t channels : {6144, 9728, 10240, 12288, 18432}) {
    for (DType type : {DType::f32, DType::bf16})
      EXPECT_STRNE(choose(ctx, Problem({{1}, channels, 4, type}).op()).name, "ref");
  }
}

}  // namespace
}  // namespace braid
