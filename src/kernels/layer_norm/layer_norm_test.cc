// Tolerances: FP32 sums of at most 6144 terms against FP64, 1e-5 of the root mean square; BF16 outputs 1/64.
#include "kernels/layer_norm/layer_norm.h"

#include "core/op_sweep.h"
#include "core/ref.h"
#include "kernels/layer_norm/layer_norm_ref.h"

namespace braid {
namespace {

struct Case {
  int64_t tokens, width;
  DType x, y;
  bool bias;
};
// Widths of real models (Nemotron-Mini 3072, Nemotron-4 6144) and odd ones.
constexpr Case kCases[] = {{1, 3072, DType::f32, DType::f32, true}, {2, 6144, DType::bf16, DType::bf16, true},
                           {5, 17, DType::f32, DType::f32, false},  {7, 33, DType::f32, DType::bf16, true},
                           {3, 1, DType::f32, DType::f32, true},    {4, 96, DType::bf16, DType::f32, false}};

TEST(LayerNorm, EveryRowAgreesWithTheReference) {
  for (const Case& c : kCases) {
    // A mean far from zero: a one-pass variance would lose its digits here.
    TestTensor x(c.x, {c.tokens, c.width}, 1, 0.5, 6), w(DType::f32, {c.width}, 2, 0.2, 1),
        bias(DType::f32, {c.width}, 3), y(c.y, {c.tokens, c.width}, 4), mean(DType::f32, {c.tokens}, 5),
        rstd(DType::f32, {c.tokens}, 6);
    sweep(LayerNormFwd{.x = x.view(),
                       .w = w.view(),
                       .bias = c.bias ? bias.view() : View(),
                       .y = y.mut(),
                       .mean = mean.mut(),
                       .rstd = rstd.mut()},
          c.y == DType::bf16 ? 2e-2 : 1e-5);
  }
}

// dL/dx, dL/dw, dL/dbias of L = sum(dy * y) by complex step on the forward reference.
TEST(LayerNorm, BackwardIsTheDerivative) {
  const int64_t tokens = 2, width = 5;
  TestTensor x(DType::f32, {tokens, width}, 1), w(DType::f32, {width}, 2), bias(DType::f32, {width}, 3),
      dy(DType::f32, {tokens, width}, 4);
  std::vector<double> inputs = to_doubles(x.view());
  for (const View& v : {w.view(), bias.view()}) {
    for (double value : to_doubles(v)) inputs.push_back(value);
  }
  const std::vector<double> weights = to_doubles(dy.view());
  using Complex = std::complex<double>;
  const auto gradient = complex_step(inputs, [&](const std::vector<Complex>& p) {
    const std::vector<Complex> px(p.begin(), p.begin() + 10), pw(p.begin() + 10, p.begin() + 15),
        pb(p.begin() + 15, p.end());
    std::vector<Complex> y(10), mean(2), rstd(2);
    layer_norm_ref(tokens, width, 1e-5, px, pw, pb, y, mean, rstd);
    Complex loss = 0;
    for (size_t i = 0; i < y.size(); ++i) loss += weights[i] * y[i];
    return loss;
  });
  TestTensor dx(DType::f32, {tokens, width}, 5), dw(DType::f32, {width}, 6, 0), dbias(DType::f32, {width}, 7, 0);
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, LayerNormBwd{
               .dy = dy.view(), .x = x.view(), .w = w.view(), .dx = dx.mut(), .dw = dw.mut(), .dbias = dbias.mut()});
  for (int64_t i = 0; i < 10; ++i) EXPECT_NEAR(element(dx.view(), i), gradient[static_cast<size_t>(i)], 1e-5);
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(element(dw.view(), i), gradient[static_cast<size_t>(10 + i)], 1e-5);
    EXPECT_NEAR(element(dbias.view(), i), gradient[static_cast<size_t>(15 + i)], 1e-5);
  }
}

SeqMap ragged() {
  SeqMap map;
  for (const int64_t len : {70, 1, 32, 5}) map.add(len);
  return map;
}

TEST(LayerNorm, EveryBackwardRowAgreesWithTheReference) {
  const SeqMap seqs = ragged();
  const int64_t tokens = seqs.tokens();
  for (const int64_t width : {1, 17, 96, 3072}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      TestTensor dy(dtype, {tokens, width}, 1), x(dtype, {tokens, width}, 2, 0.5, 6), w(DType::f32, {width}, 3, 0.2, 1),
          y(DType::f32, {tokens, width}, 4), mean(DType::f32, {tokens}, 5), rstd(DType::f32, {tokens}, 6),
          dx(dtype, {tokens, width}, 7), dw(DType::f32, {width}, 8), dbias(DType::f32, {width}, 9);
      Arena arena;
      Ctx ctx{.arena = arena};
      run(ctx, LayerNormFwd{.x = x.view(), .w = w.view(), .y = y.mut(), .mean = mean.mut(), .rstd = rstd.mut()});
      LayerNormBwd op{.dy = dy.view(), .x = x.view(), .w = w.view(), .dx = dx.mut(), .dw = dw.mut(), .seqs = &seqs};
      // One channel has no variance: dx is a difference of equal terms, times rstd = eps^-1/2.
      const double tolerance = dtype == DType::bf16 ? 2e-2 : width == 1 ? 1e-3 : 2e-5;
      sweep(op, tolerance);
      op.mean = mean.view();
      op.rstd = rstd.view();
      op.dbias = dbias.mut();
      sweep(op, tolerance);
    }
  }
}

// A batch in one call and cut between its sequences: the same bits.
TEST(LayerNorm, BackwardOfABatchIsThatOfItsParts) {
  const SeqMap seqs = ragged();
  const int64_t tokens = seqs.tokens(), width = 100;
  TestTensor dy(DType::f32, {tokens, width}, 1), x(DType::f32, {tokens, width}, 2), w(DType::f32, {width}, 3),
      dx(DType::f32, {tokens, width}, 4), dw(DType::f32, {width}, 5), dbias(DType::f32, {width}, 6);
  TestTensor part_dx = dx, part_dw = dw, part_dbias = dbias;
  Arena arena;
  Ctx ctx{.arena = arena, .threads = 2};
  run(ctx, LayerNormBwd{.dy = dy.view(),
                        .x = x.view(),
                        .w = w.view(),
                        .dx = dx.mut(),
                        .dw = dw.mut(),
                        .dbias = dbias.mut(),
                        .seqs = &seqs});
  ctx.threads = 1;
  for (const Seq& seq : seqs.seqs) {
    run(ctx, LayerNormBwd{.dy = dy.view().slice(0, seq.start, seq.len),
                          .x = x.view().slice(0, seq.start, seq.len),
                          .w = w.view(),
                          .dx = part_dx.mut().slice(0, seq.start, seq.len),
                          .dw = part_dw.mut(),
                          .dbias = part_dbias.mut()});
  }
  EXPECT_EQ(dx.bytes, part_dx.bytes);
  EXPECT_EQ(dw.bytes, part_dw.bytes);
  EXPECT_EQ(dbias.bytes, part_dbias.bytes);
}

TEST(LayerNorm, StatisticsMayBeLeftOut) {
  TestTensor fused(DType::f32, {3, 100}, 1), w(DType::f32, {48}, 2), y(DType::f32, {3, 48}, 3);
  sweep(LayerNormFwd{.x = fused.view().slice(1, 4, 48), .w = w.view(), .y = y.mut()}, 1e-5);
}

}  // namespace
}  // namespace braid
