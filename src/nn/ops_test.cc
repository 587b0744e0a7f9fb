// Taped ops together: sums of gradients, and a tape that recomputes what it freed.
#include "nn/ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>

#include "core/op_sweep.h"

namespace braid::nn {
namespace {

struct Bench {
  Arena arena{};
  Tape tape{};
  Ctx ctx{.arena = arena};
  SeqMap seqs;
  StateView state{};
  Run run{.ctx = ctx, .seqs = seqs, .state = state};
  explicit Bench(int64_t tokens) : seqs(SeqMap::one(tokens)) { ctx.tape = &tape; }
};

// y = x + (x + b): x receives the gradient twice, b once, and neither aliases the other's memory.
TEST(Tape, BothTermsOfASumReceiveTheGradient) {
  Bench bench(2);
  const Tensor x(bench.arena, DType::f32, {2, 3}), b(bench.arena, DType::f32, {2, 3}),
      dy(bench.arena, DType::f32, {2, 3});
  fill(x.mut(), 1);
  fill(b.mut(), 2);
  for (int64_t i = 0; i < 6; ++i) set_element(dy.mut(), i, static_cast<double>(i));
  bench.tape.require_grad(x);
  bench.tape.require_grad(b);
  const Tensor y = add(bench.run, x, add(bench.run, x, b));
  bench.tape.add_grad(bench.ctx, y, dy);
  bench.tape.backward(bench.ctx);
  for (int64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(element(y.view(), i), 4);
    EXPECT_EQ(element(bench.tape.grad(x).view(), i), 2 * static_cast<double>(i));
    EXPECT_EQ(element(bench.tape.grad(b).view(), i), static_cast<double>(i));
    EXPECT_EQ(element(dy.view(), i), static_cast<double>(i)) << "the caller's gradient was overwritten";
  }
}

// Of BF16 x and F32 weights, which other products round to BF16.
TEST(Linear, RoutersComputeInFp32) {
  const int64_t tokens = 5, width = 70, experts = 7;
  for (const ParamRole role : {ParamRole::router, ParamRole::latent_in}) {
    Bench bench(tokens);
    const TestTensor x(DType::bf16, {tokens, width}, 1), w(DType::f32, {experts, width}, 2);
    Tensor dy(bench.arena, DType::f32, {tokens, experts});
    fill(dy.mut(), 0.3);
    Tensor in(bench.arena, DType::bf16, {tokens, width});
    std::memcpy(in.mut().data, x.view().data, static_cast<size_t>(x.view().bytes()));
    Param param{{.name = "p", .role = role}, dense_weight(w.view())};
    bench.tape.require_grad(in);
    const Tensor y = linear(bench.run, in, param);
    double error = 0;
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t e = 0; e < experts; ++e) {
        double sum = 0;
        for (int64_t k = 0; k < width; ++k) sum += element(x.view(), t * width + k) * element(w.view(), e * width + k);
        error = std::max(error, std::abs(sum - element(y.view(), t * experts + e)));
      }
    }
    bench.tape.add_grad(bench.ctx, y, dy);
    bench.tape.backward(bench.ctx);
    double gradient_error = 0;
    for (int64_t k = 0; k < width; ++k) {
      double sum = 0;
      for (int64_t e = 0; e < experts; ++e) sum += 0.3f * element(w.view(), e * width + k);
      // Rounded once, to the BF16 of x.
      gradient_error = std::max(gradient_error, std::abs(sum - element(bench.tape.grad(in).view(), k)) / std::abs(sum));
    }
    if (role == ParamRole::router) {
      EXPECT_LT(error, 1e-5);
      EXPECT_LT(gradient_error, 0.004);
    } else {
      EXPECT_GT(error, 1e-4);
    }
  }
}

// Four layers of norm, up, activation and down, with two parts of a product used on their own.
struct Stack {
  static constexpr int64_t kTokens = 9, kWidth = 20, kInner = 24, kLayers = 4;
  Bench bench{kTokens};
  std::deque<TestTensor> values{};
  std::deque<Param> params{};
  std::vector<Tensor> grads{};
  Tensor dx{};

  Param& make(const Shape& shape, double scale, double shift) {
    const TestTensor& v = values.emplace_back(DType::f32, shape, 7 + params.size(), scale, shift);
    grads.emplace_back(bench.arena, DType::f32, shape);
    fill(grads.back().mut(), 0);
    return params.emplace_back(Param{{.name = "p"}, dense_weight(v.view()), grads.back().mut()});
  }
  int64_t pass(bool drop_all) {
    bench.tape.drop = [drop_all](Cost, size_t) { return drop_all; };
    const TestTensor input(DType::f32, {kTokens, kWidth}, 3);
    const Tensor x0(bench.arena, DType::f32, {kTokens, kWidth}), dy(bench.arena, DType::f32, {kTokens, kWidth});
    std::memcpy(x0.mut().data, input.view().data, static_cast<size_t>(x0.view().bytes()));
    fill(dy.mut(), 0.5);
    bench.tape.require_grad(x0);
    Tensor x = x0;
    for (int64_t l = 0; l < kLayers; ++l) {
      const Tensor n = rms_norm(bench.run, x, make({1, kWidth}, 0.1, 1), {});
      const Tensor u = linear(bench.run, n, make({2 * kInner, kWidth}, 0.3, 0));
      const Tensor h = act(bench.run, u.slice(1, 0, kInner), u.slice(1, kInner, kInner), Act::silu);
      x = add(bench.run, x, linear(bench.run, h, make({kWidth, kInner}, 0.3, 0)));
    }
    const int64_t held = bench.arena.bytes_in_use();
    bench.tape.add_grad(bench.ctx, x, dy);
    bench.tape.backward(bench.ctx);
    dx = bench.tape.grad(x0);
    bench.tape.clear();
    return held;
  }
};

TEST(Tape, FreedValuesAreRecomputedBitForBit) {
  Stack kept, dropped;
  const int64_t all = kept.pass(false), few = dropped.pass(true);
  EXPECT_LT(few, all);
  ASSERT_TRUE(kept.dx && dropped.dx);
  EXPECT_EQ(0, std::memcmp(kept.dx.view().data, dropped.dx.view().data, static_cast<size_t>(kept.dx.view().bytes())));
  for (size_t i = 0; i < kept.grads.size(); ++i) {
    const View a = kept.grads[i].view(), b = dropped.grads[i].view();
    EXPECT_EQ(0, std::memcmp(a.data, b.data, static_cast<size_t>(a.bytes()))) << "parameter " << i;
    EXPECT_NE(0, element(a, a.count() / 2)) << "parameter " << i << " received nothing";
  }
  EXPECT_GT(dropped.bench.ctx.counts.flops, kept.bench.ctx.counts.flops);
}

}  // namespace
}  // namespace braid::nn
