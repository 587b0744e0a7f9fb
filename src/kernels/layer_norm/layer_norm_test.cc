// Tolerances: FP32 sums of at most 6144 terms against FP64, 1e-5 of the root mean square; BF16 outputs 1/64.
#include "kernels/layer_norm/layer_norm.h"

#include "core/op_sweep.h"

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

TEST(LayerNorm, StatisticsMayBeLeftOut) {
  TestTensor fused(DType::f32, {3, 100}, 1), w(DType::f32, {48}, 2), y(DType::f32, {3, 48}, 3);
  sweep(LayerNormFwd{.x = fused.view().slice(1, 4, 48), .w = w.view(), .y = y.mut()}, 1e-5);
}

}  // namespace
}  // namespace braid
