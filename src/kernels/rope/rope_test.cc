// Tolerance: two FP32 products and a sum against FP64, 1e-6 of the root mean square; BF16 heads 1/64.
#include "kernels/rope/rope.h"

#include <numbers>

#include "core/op_sweep.h"
#include "core/ref.h"
#include "kernels/rope/rope_ref.h"

namespace braid {
namespace {

struct Case {
  int64_t heads, width, half;
};
constexpr Case kCases[] = {{4, 128, 64}, {3, 12, 6}, {2, 80, 20}, {1, 64, 16}, {5, 2, 1}};

TEST(Rope, EveryRowAgreesWithTheReference) {
  SeqMap seqs;
  seqs.add(3, 0, 1);
  seqs.add(1, 17, 0);
  seqs.add(9, 5, 2);
  for (const Case& c : kCases) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      TestTensor x(dtype, {13, c.heads, c.width}, 1), cos(DType::f32, {18, c.half}, 2),
          sin(DType::f32, {18, c.half}, 3);
      rope_tables({.theta = 10000}, cos.mut(), sin.mut());
      const double tolerance = dtype == DType::bf16 ? 2e-2 : 2e-6;
      for (const bool adjacent : {false, true}) {
        sweep(RopeFwd{.x = x.mut(), .cos = cos.view(), .sin = sin.view(), .seqs = &seqs, .adjacent = adjacent},
              tolerance);
        sweep(RopeBwd{.dx = x.mut(), .cos = cos.view(), .sin = sin.view(), .seqs = &seqs, .adjacent = adjacent},
              tolerance);
      }
    }
  }
}

// dL/dx of L = sum(dy * y) by complex step on the forward reference, one head at one position.
void expect_derivative(bool adjacent) {
  const int64_t width = 10, half = 3, pos = 4;
  const SeqMap seqs = SeqMap::one(1, pos);
  TestTensor x(DType::f32, {1, 1, width}, 1), dy(DType::f32, {1, 1, width}, 2), cos(DType::f32, {5, half}, 3),
      sin(DType::f32, {5, half}, 4);
  rope_tables({.theta = 50}, cos.mut(), sin.mut());
  const std::vector<double> c = to_doubles(cos.view()), s = to_doubles(sin.view()), weights = to_doubles(dy.view());
  const auto gradient = complex_step(to_doubles(x.view()), [&](std::vector<std::complex<double>> p) {
    rope_ref(half, adjacent, &c[static_cast<size_t>(pos * half)], &s[static_cast<size_t>(pos * half)], p.data());
    std::complex<double> loss = 0;
    for (size_t i = 0; i < p.size(); ++i) loss += weights[i] * p[i];
    return loss;
  });
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, RopeBwd{.dx = dy.mut(), .cos = cos.view(), .sin = sin.view(), .seqs = &seqs, .adjacent = adjacent});
  for (int64_t i = 0; i < width; ++i) EXPECT_NEAR(element(dy.view(), i), gradient[static_cast<size_t>(i)], 1e-6);
}

TEST(Rope, BackwardIsTheDerivative) {
  expect_derivative(false);
  expect_derivative(true);
}

// Adjacent pairs are the half-split ones of permuted channels.
TEST(Rope, PairsDifferByAPermutation) {
  const SeqMap seqs = SeqMap::one(3, 2);
  TestTensor halves(DType::f32, {3, 2, 10}, 1), adjacent = halves, cos(DType::f32, {5, 4}, 2),
                                                sin(DType::f32, {5, 4}, 3);
  rope_tables({}, cos.mut(), sin.mut());
  const auto place = [](int64_t i) { return i >= 8 ? i : i < 4 ? 2 * i : 2 * (i - 4) + 1; };
  for (int64_t i = 0; i < 60; ++i)
    adjacent.mut().as<float>()[i / 10 * 10 + place(i % 10)] = halves.view().as<float>()[i];
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, RopeFwd{.x = halves.mut(), .cos = cos.view(), .sin = sin.view(), .seqs = &seqs});
  run(ctx, RopeFwd{.x = adjacent.mut(), .cos = cos.view(), .sin = sin.view(), .seqs = &seqs, .adjacent = true});
  for (int64_t i = 0; i < 60; ++i)
    EXPECT_NEAR(element(adjacent.view(), i / 10 * 10 + place(i % 10)), element(halves.view(), i), 1e-6) << i;
}

TEST(Rope, SlicesOfAFusedProjectionNeedNoCopy) {
  const SeqMap seqs = SeqMap::one(3, 2);
  TestTensor fused(DType::f32, {3, 60}, 1), whole = fused, cos(DType::f32, {5, 4}, 2), sin(DType::f32, {5, 4}, 3);
  rope_tables({}, cos.mut(), sin.mut());
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx,
      RopeFwd{
          .x = fused.mut().slice(1, 12, 24).split_last(2, 12), .cos = cos.view(), .sin = sin.view(), .seqs = &seqs});
  for (int64_t t = 0; t < 3; ++t) {
    for (int64_t i = 0; i < 60; ++i) {
      const bool rotated = i >= 12 && i < 36 && (i - 12) % 12 < 8;
      EXPECT_EQ(element(fused.view(), t * 60 + i) != element(whole.view(), t * 60 + i), rotated) << t << " " << i;
    }
  }
}

// Frequencies of Llama 3.1 (theta 500000, R 128), and of linear scaling, from their definitions.
TEST(Rope, TablesFollowTheScaling) {
  TestTensor cos(DType::f32, {4, 64}, 1), sin(DType::f32, {4, 64}, 2);
  const RopeOptions llama{.theta = 500000, .scaling = RopeScaling::llama3, .factor = 8};
  rope_tables(llama, cos.mut(), sin.mut());
  for (int64_t i : {0, 20, 30, 35, 40, 63}) {
    const double base = std::pow(500000.0, -static_cast<double>(i) / 64), wave = 2 * std::numbers::pi / base;
    const double blend = std::clamp((8192 / wave - 1) / 3, 0.0, 1.0);
    const double f = (1 - blend) * base / 8 + blend * base;
    EXPECT_NEAR(element(sin.view(), 3 * 64 + i), std::sin(3 * f), 1e-7) << i;
    EXPECT_NEAR(element(cos.view(), 3 * 64 + i), std::cos(3 * f), 1e-7) << i;
  }
  rope_tables({.theta = 100, .scaling = RopeScaling::linear, .factor = 4}, cos.mut(), sin.mut());
  EXPECT_NEAR(element(sin.view(), 2 * 64 + 32), std::sin(2 * 0.1 / 4), 1e-7);
}

// Of transformers' _compute_yarn_parameters (theta 10000, R 12, factor 4, original length 64).
TEST(Rope, YarnBlendsByIndex) {
  RopeOptions yarn{.theta = 10000, .scaling = RopeScaling::yarn, .factor = 4, .original_max_position_embeddings = 64};
  const double whole[] = {1, 0.134652153, 0.011603971, 0.00249999994, 0.000538608583, 0.000116039737},
               parts[] = {1, 0.140060544, 0.011603971, 0.00249999994, 0.000538608583, 0.000116039737};
  for (int64_t i = 0; i < 6; ++i) EXPECT_NEAR(rope_frequency(yarn, i, 6) / whole[i], 1, 1e-6) << i;
  yarn.truncate = false;
  yarn.beta_fast = 8;
  yarn.beta_slow = 0.5;
  for (int64_t i = 0; i < 6; ++i) EXPECT_NEAR(rope_frequency(yarn, i, 6) / parts[i], 1, 1e-6) << i;
  EXPECT_NEAR(yarn_attention_factor(4), 1.13862943611, 1e-9);
  EXPECT_EQ(yarn_attention_factor(0.5), 1);
  yarn.attention_factor = 1.5;
  TestTensor cos(DType::f32, {3, 6}, 1), sin(DType::f32, {3, 6}, 2);
  rope_tables(yarn, cos.mut(), sin.mut());
  EXPECT_NEAR(element(cos.view(), 2 * 6 + 3), 1.5 * std::cos(2 * parts[3]), 1e-6);
  EXPECT_NEAR(element(sin.view(), 2 * 6 + 3), 1.5 * std::sin(2 * parts[3]), 1e-6);
}

}  // namespace
}  // namespace braid
