// Tolerances: FP32 sums of at most 8192 squares against FP64, relative 1e-5; BF16 outputs 1/128. Backward subtracts the
// component of dy along x, which is all of it where a group has one channel: 1e-4.
#include "kernels/rms_norm/rms_norm.h"

#include "core/op_sweep.h"
#include "core/ref.h"
#include "kernels/rms_norm/rms_norm_ref.h"
#include "support/run_here.h"

namespace braid {
namespace {

using support::run_here;

constexpr double kBwdTolerance = 1e-4;

struct Case {
  int64_t tokens, width, groups;
  DType type;
  bool gate;
};

// Widths of real models and odd ones: 2688 (Nano-30B), 480 (P = 80), 1, 7.
constexpr Case kCases[] = {{1, 2688, 1, DType::f32, false}, {5, 480, 2, DType::f32, true},
                           {3, 7, 1, DType::f32, false},    {2, 4096, 8, DType::bf16, true},
                           {17, 96, 1, DType::bf16, false}, {4, 1, 1, DType::f32, false},
                           {0, 32, 1, DType::f32, false}};

TEST(RmsNorm, EveryRowAgreesWithTheReference) {
  for (const Case& c : kCases) {
    TestTensor x(c.type, {c.tokens, c.width}, 1), z(c.type, {c.tokens, c.width}, 2),
        w(DType::f32, {c.width}, 3, 0.2, 1), y(c.type, {c.tokens, c.width}, 4);
    TestTensor rstd(DType::f32, {c.tokens, c.groups}, 5);
    if (c.tokens == 0) continue;
    sweep(RmsNormFwd{.x = x.view(),
                     .w = w.view(),
                     .z = c.gate ? z.view() : View(),
                     .y = y.mut(),
                     .rstd = rstd.mut(),
                     .groups = c.groups},
          c.type == DType::bf16 ? 2e-2 : 1e-5);
  }
}

TEST(RmsNorm, SlicesOfAFusedProjectionNeedNoCopy) {
  TestTensor fused(DType::f32, {3, 100}, 1), w(DType::f32, {48}, 2), y(DType::f32, {3, 48}, 3);
  sweep(RmsNormFwd{.x = fused.view().slice(1, 4, 48),
                   .w = w.view(),
                   .z = fused.view().slice(1, 52, 48),
                   .y = y.mut(),
                   .groups = 2},
        1e-5);
}

TEST(RmsNorm, ExtremeGatesCloseAndOpen) {
  const std::vector<float> x(8, 1), z{-1000, -120, -90, -1, 1, 90, 120, 1000}, w(8, 1);
  TestTensor y(DType::f32, {1, 8}, 1);
  sweep(
      RmsNormFwd{
          .x = view_of(x.data(), {1, 8}), .w = view_of(w.data(), {8}), .z = view_of(z.data(), {1, 8}), .y = y.mut()},
      1e-5);
}

// Channels of longer rows: what is given replaces the statistics of these alone.
TEST(RmsNorm, StatisticsMayBeGiven) {
  TestTensor x(DType::f32, {5, 70}, 1), w(DType::f32, {70}, 2), dy(DType::f32, {5, 70}, 3),
      scale(DType::f32, {5, 2}, 4, 0.1, 1), mean(DType::f32, {5, 2}, 5), y(DType::f32, {5, 70}, 6);
  TestTensor dx(DType::f32, {5, 70}, 7), dw(DType::f32, {70}, 8);
  sweep(RmsNormFwd{.x = x.view(), .w = w.view(), .y = y.mut(), .scale = scale.view(), .groups = 2}, 1e-5);
  sweep(RmsNormBwd{.dy = dy.view(),
                   .x = x.view(),
                   .w = w.view(),
                   .rstd = scale.view(),
                   .mean = mean.view(),
                   .dx = dx.mut(),
                   .dw = dw.mut(),
                   .groups = 2},
        1e-5);
}

struct BwdProblem {
  Case shape;
  SeqMap seqs;
  TestTensor dy, fused, w, rstd, dx, dz, dw;
  BwdProblem(const Case& c, const std::vector<int64_t>& lengths)
      : shape(c),
        dy(c.type, {c.tokens, c.width}, 1),
        fused(c.type, {c.tokens, 2 * c.width + 3}, 2),
        w(DType::f32, {c.width}, 3, 0.2, 1),
        rstd(DType::f32, {c.tokens, c.groups}, 4),
        dx(DType::f32, dy.shape, 5),
        dz(DType::f32, fused.shape, 6),
        dw(DType::f32, w.shape, 7) {
    for (int64_t n : lengths) seqs.add(n);
  }
  RmsNormBwd op() {
    return {.dy = dy.view(),
            .x = fused.view().slice(1, 0, shape.width),
            .w = w.view(),
            .z = shape.gate ? fused.view().slice(1, shape.width + 1, shape.width) : View(),
            .dx = dx.mut(),
            .dz = shape.gate ? dz.mut().slice(1, shape.width + 1, shape.width) : MutView(),
            .dw = dw.mut(),
            .seqs = seqs.seqs.empty() ? nullptr : &seqs,
            .groups = shape.groups};
  }
};

TEST(RmsNormBwd, EveryRowAgreesWithTheReference) {
  for (const Case& c : kCases) {
    if (c.tokens == 0) continue;
    sweep(BwdProblem(c, {}).op(), kBwdTolerance);
    BwdProblem p(c, {1, 0, c.tokens - 1});
    sweep(p.op(), kBwdTolerance);
    RmsNormBwd op = p.op();  // with what forward saved
    TestTensor y(DType::f32, {c.tokens, c.width}, 8);
    Arena arena;
    Ctx ctx{.arena = arena};
    run(ctx, RmsNormFwd{.x = op.x, .w = op.w, .z = op.z, .y = y.mut(), .rstd = p.rstd.mut(), .groups = c.groups});
    op.rstd = p.rstd.view();
    sweep(op, kBwdTolerance);
  }
}

TEST(RmsNormBwd, PublishedShapesHaveAFastRow) {
  Arena arena;
  const Ctx ctx{.arena = arena};
  for (DType type : {DType::f32, DType::bf16}) {
    for (int64_t width : {2688, 3136, 4480, 8192})
      EXPECT_STRNE(choose(ctx, BwdProblem({1, width, 1, type, false}, {}).op()).name, "ref");
    for (int64_t width : {4096, 7680, 16384})
      EXPECT_STRNE(choose(ctx, BwdProblem({1, width, 8, type, true}, {}).op()).name, "ref");
  }
}

// Gradients and dy may be BF16.
TEST(RmsNormBwd, GradientsMayBeNarrow) {
  BwdProblem p({9, 100, 2, DType::bf16, true}, {4, 5});
  TestTensor dx(DType::bf16, p.dx.shape, 5), dz(DType::bf16, p.dx.shape, 6);
  RmsNormBwd op = p.op();
  op.dx = dx.mut();
  op.dz = dz.mut();
  sweep(op, 2e-2);
}

TEST(RmsNormBwd, CutsBetweenSequencesChangeNoBit) {
  const Case shape{120, 70, 2, DType::f32, true};
  BwdProblem whole(shape, {5, 0, 78, 1, 36}), parts(shape, {5, 0, 78, 1, 36});
  run_here(whole.op());
  for (const Seq& seq : parts.seqs.seqs) {
    const SeqMap one = SeqMap::one(seq.len);
    RmsNormBwd op = parts.op();
    for (View* v : {&op.dy, &op.x, &op.z}) *v = v->slice(0, seq.start, seq.len);
    for (MutView* v : {&op.dx, &op.dz}) *v = v->slice(0, seq.start, seq.len);
    op.seqs = seq.start == 5 ? nullptr : &one;
    run_here(op);
  }
  EXPECT_TRUE(parts.dx.bytes == whole.dx.bytes);
  EXPECT_TRUE(parts.dz.bytes == whole.dz.bytes);
  EXPECT_TRUE(parts.dw.bytes == whole.dw.bytes);
}

// Heads normed separately: the grid follows the tokens they belong to.
TEST(RmsNormBwd, SeveralRowsOfATokenStayTogether) {
  constexpr int64_t kHeads = 3;
  const Case shape{kHeads * 40, 16, 1, DType::f32, false};
  BwdProblem whole(shape, {5, 34, 1}), parts(shape, {5, 34, 1});
  RmsNormBwd op = whole.op();
  op.rows_per_token = kHeads;
  sweep(op, kBwdTolerance);
  const TestTensor fresh(DType::f32, whole.dw.shape, 7);
  whole.dw = fresh;
  run_here(op);
  for (const Seq& seq : parts.seqs.seqs) {
    const SeqMap one = SeqMap::one(seq.len);
    RmsNormBwd part = parts.op();
    for (View* v : {&part.dy, &part.x}) *v = v->slice(0, seq.start * kHeads, seq.len * kHeads);
    part.dx = part.dx.slice(0, seq.start * kHeads, seq.len * kHeads);
    part.seqs = &one;
    part.rows_per_token = kHeads;
    run_here(part);
  }
  EXPECT_TRUE(parts.dx.bytes == whole.dx.bytes);
  EXPECT_TRUE(parts.dw.bytes == whole.dw.bytes);
}

// dL/dx, dL/dz, dL/dw of L = sum(dy * y) by complex step on the forward reference.
TEST(RmsNorm, BackwardIsTheDerivative) {
  const int64_t tokens = 2, width = 6, groups = 2;
  TestTensor x(DType::f32, {tokens, width}, 1), z(DType::f32, {tokens, width}, 2), w(DType::f32, {width}, 3),
      dy(DType::f32, {tokens, width}, 4);
  std::vector<double> inputs = to_doubles(x.view()), weights = to_doubles(dy.view());
  for (const View& v : {z.view(), w.view()}) {
    const auto more = to_doubles(v);
    inputs.insert(inputs.end(), more.begin(), more.end());
  }
  using Complex = std::complex<double>;
  const auto gradient = complex_step(inputs, [&](const std::vector<Complex>& p) {
    const std::vector<Complex> px(p.begin(), p.begin() + 12), pz(p.begin() + 12, p.begin() + 24),
        pw(p.begin() + 24, p.end());
    std::vector<Complex> y(12), rstd(4);
    rms_norm_fwd_ref(tokens, width, groups, 1e-5, px, pz, pw, y, rstd);
    Complex loss = 0;
    for (size_t i = 0; i < y.size(); ++i) loss += weights[i] * y[i];
    return loss;
  });
  TestTensor y(DType::f32, {tokens, width}, 5), rstd(DType::f32, {tokens, groups}, 6),
      dx(DType::f32, {tokens, width}, 7), dz(DType::f32, {tokens, width}, 8);
  TestTensor dw(DType::f32, {width}, 9, 0);
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, RmsNormFwd{.x = x.view(), .w = w.view(), .z = z.view(), .y = y.mut(), .rstd = rstd.mut(), .groups = groups});
  run(ctx, RmsNormBwd{.dy = dy.view(),
                      .x = x.view(),
                      .w = w.view(),
                      .z = z.view(),
                      .rstd = rstd.view(),
                      .dx = dx.mut(),
                      .dz = dz.mut(),
                      .dw = dw.mut(),
                      .groups = groups});
  for (int64_t i = 0; i < 12; ++i) {
    EXPECT_NEAR(element(dx.view(), i), gradient[static_cast<size_t>(i)], 1e-5);
    EXPECT_NEAR(element(dz.view(), i), gradient[static_cast<size_t>(i + 12)], 1e-5);
  }
  for (int64_t i = 0; i < 6; ++i) EXPECT_NEAR(element(dw.view(), i), gradient[static_cast<size_t>(i + 24)], 1e-5);
}

}  // namespace
}  // namespace braid
