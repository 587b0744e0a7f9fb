// Tolerance: W products in FP32 and one exp against FP64, relative 1e-5; the kept state is exact.
#include "kernels/conv1d/conv1d.h"

#include <cstring>

#include "core/op_sweep.h"
#include "core/ref.h"
#include "kernels/conv1d/conv1d_ref.h"
#include "support/run_here.h"

namespace braid {
namespace {

using support::run_here;

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
  // Slots in reverse: a sequence and its state have different indices.
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
TEST(Conv1d, FirstTapIsForTheOldestInput) {
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

// A step with a trail leaves its state unchanged and writes the state after each token, as calls of one token would.
TEST(Conv1d, ATrailHasTheStateAfterEachToken) {
  for (const DType type : {DType::f32, DType::bf16}) {
    const auto make = [type] {
      Problem p({{8, 3, 0, 0, 0, 0, 0, 0, 0, 0}, 600, 4, type});
      p.seqs.seqs.resize(2);  // of slots 9 and 8
      p.seqs.trails = {4, 0, 7, 1, 2, 3, 5, 6};
      p.seqs.seqs[0].phase = Phase::step;
      p.seqs.seqs[0].trail = 0;
      return p;
    };
    Problem swept = make(), trail = make(), single = make(), before = make();
    sweep(swept.op(), kTolerance);
    run_here(trail.op());
    const auto same = [](const Problem& a, int64_t i, const Problem& b, int64_t j) {
      const View x = a.state.view().slice(0, i, 1), y = b.state.view().slice(0, j, 1);
      return std::memcmp(x.data, y.data, static_cast<size_t>(x.bytes())) == 0;
    };
    EXPECT_TRUE(same(trail, 9, before, 9));
    for (const Seq& s : trail.seqs.seqs) {
      for (int64_t t = 0; t < s.len; ++t) {
        const SeqMap one = SeqMap::one(1, t, s.slot);
        Conv1dFwd op = single.op();
        op.x = op.x.slice(0, s.start + t, 1);
        op.y = op.y.slice(0, s.start + t, 1);
        op.seqs = &one;
        run_here(op);
        if (s.trail >= 0) {
          EXPECT_TRUE(same(trail, trail.seqs.slot_after(s, t), single, s.slot)) << "token " << t;
        }
      }
    }
    EXPECT_TRUE(trail.y.bytes == single.y.bytes);
    EXPECT_TRUE(same(trail, 8, single, 8));
  }
}

// Far below zero silu is zero, even though exp overflows.
TEST(Conv1d, SiluOfLargeNumbersIsFinite) {
  Problem p({{64}, 40, 4});
  for (int64_t i = 0; i < p.x.view().count(); ++i) set_element(p.x.mut(), i, 400 * element(p.x.view(), i));
  sweep(p.op(), kTolerance);
}

TEST(Conv1d, MayWriteProductOperands) {
  for (DType type : {DType::f32, DType::bf16}) {
    Problem p({{5, 0, 1, 9}, 77, 4, type});
    TestTensor y(DType::bf16, p.y.shape, 5);
    Conv1dFwd op = p.op();
    op.y = y.mut();
    sweep(op, 2e-2);
    Arena arena;
    EXPECT_STRNE(choose(Ctx{.arena = arena}, op).name, "ref");
  }
}

// Without a state every sequence starts from zeros.
TEST(Conv1d, NoStateIsAStateOfZeros) {
  for (DType type : {DType::f32, DType::bf16}) {
    Problem with({{5, 0, 1, 2, 9}, 130, 4, type}), without({{5, 0, 1, 2, 9}, 130, 4, type});
    fill(with.state.mut(), 0);
    Conv1dFwd op = without.op();
    op.state = {};
    sweep(op, kTolerance);
    run_here(with.op());
    run_here(op);
    EXPECT_TRUE(with.y.bytes == without.y.bytes);
  }
}

// x and its gradient are columns of a fused row.
struct BwdProblem {
  Case shape;
  SeqMap seqs;
  TestTensor dy, fused, w, bias, dfused, dw, dbias;
  explicit BwdProblem(const Case& c)
      : shape(c),
        seqs(Problem::map(c.lengths)),
        dy(c.type, {seqs.tokens(), c.channels}, 1),
        fused(c.type, {seqs.tokens(), c.channels + 11}, 2),
        w(DType::f32, {c.channels, c.width}, 3, 0.5),
        bias(DType::f32, {c.channels}, 4),
        dfused(DType::f32, fused.shape, 5),
        dw(DType::f32, w.shape, 6),
        dbias(DType::f32, bias.shape, 7) {}
  Conv1dBwd op() {
    return {.dy = dy.view(),
            .x = fused.view().slice(1, 4, shape.channels),
            .w = w.view(),
            .bias = shape.bias ? bias.view() : View(),
            .dx = dfused.mut().slice(1, 4, shape.channels),
            .dw = dw.mut(),
            .dbias = shape.bias ? dbias.mut() : MutView(),
            .seqs = &seqs,
            .silu = shape.silu};
  }
};

TEST(Conv1dBwd, TheReferenceIsTheDerivative) {
  for (bool silu : {true, false}) {
    const int64_t channels = 3, width = 4;
    BwdProblem p({{5, 1, 0, 2}, channels, width, DType::f32, true, silu});
    const Conv1dBwd op = p.op();
    std::vector<double> inputs;
    for (const View& v : {op.x, op.w, op.bias}) {
      const auto more = to_doubles(v);
      inputs.insert(inputs.end(), more.begin(), more.end());
    }
    using Complex = std::complex<double>;
    const auto gradient = complex_step(inputs, [&](const std::vector<Complex>& z) {
      const std::vector<Complex> x(z.begin(), z.begin() + 24), w(z.begin() + 24, z.begin() + 36),
          bias(z.begin() + 36, z.end());
      std::vector<Complex> y(24);
      for (const Seq& seq : p.seqs.seqs) {
        std::vector<Complex> state(9);
        const auto first = static_cast<size_t>(seq.start * 3), count = static_cast<size_t>(seq.len * 3);
        conv1d_ref<Complex>(seq.len, channels, width, silu, std::span(x).subspan(first, count), w, bias, state,
                            std::span(y).subspan(first, count));
      }
      Complex loss = 0;
      for (size_t i = 0; i < y.size(); ++i) loss += element(op.dy, static_cast<int64_t>(i)) * y[i];
      return loss;
    });
    fill(op.dw, 0);
    fill(op.dbias, 0);
    Arena arena;
    Ctx ctx{.arena = arena};
    run_row(ctx, op, Conv1dBwd::rows().back());
    size_t at = 0;
    for (const View& v : {View(op.dx), View(op.dw), View(op.dbias)}) {
      for (int64_t i = 0; i < v.count(); ++i, ++at) EXPECT_NEAR(element(v, i), gradient[at], 1e-5) << at;
    }
  }
}

TEST(Conv1dBwd, EveryRowAgreesWithTheReference) {
  const Case cases[] = {{{5, 0, 1, 2, 3, 40}, 500, 4},
                        {{1, 1, 1}, 2000, 4},
                        {{7, 2}, 13, 4, DType::bf16},
                        {{9}, 1, 2},
                        {{3, 8}, 77, 3},
                        {{6}, 70, 7, DType::f32, false},
                        {{4, 1}, 520, 4, DType::bf16},
                        {{2}, 33, 4, DType::f32, true, false},
                        {{150, 70}, 70, 4},
                        {{11}, 40, 1}};
  for (const Case& c : cases) sweep(BwdProblem(c).op(), kTolerance);
}

TEST(Conv1dBwd, CutsBetweenSequencesChangeNoBit) {
  const Case shape{{5, 0, 150, 1, 66}, 130, 4};
  BwdProblem whole(shape), parts(shape);
  run_here(whole.op());
  for (const Seq& seq : parts.seqs.seqs) {
    const SeqMap one = SeqMap::one(seq.len);
    Conv1dBwd op = parts.op();
    op.dy = op.dy.slice(0, seq.start, seq.len);
    op.x = op.x.slice(0, seq.start, seq.len);
    op.dx = op.dx.slice(0, seq.start, seq.len);
    op.seqs = &one;
    run_here(op);
  }
  EXPECT_TRUE(parts.dfused.bytes == whole.dfused.bytes);  // including the columns next to them
  EXPECT_TRUE(parts.dw.bytes == whole.dw.bytes);
  EXPECT_TRUE(parts.dbias.bytes == whole.dbias.bytes);
}

TEST(Conv1d, PublishedShapesHaveAFastRow) {
  Arena arena;
  const Ctx ctx{.arena = arena};
  for (int64_t channels : {6144, 9728, 10240, 12288, 18432}) {
    for (DType type : {DType::f32, DType::bf16})
      EXPECT_STRNE(choose(ctx, Problem({{1}, channels, 4, type}).op()).name, "ref");
    EXPECT_STRNE(choose(ctx, BwdProblem({{1}, channels, 4}).op()).name, "ref");
    EXPECT_STRNE(choose(ctx, BwdProblem({{1}, channels, 4, DType::bf16}).op()).name, "ref");
  }
}

}  // namespace
}  // namespace braid
