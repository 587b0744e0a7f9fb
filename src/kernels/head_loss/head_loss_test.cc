// Tolerances, relative to the root mean square: FP32 2e-5 (sums over a vocabulary); rows of BF16 operands round the
// gradient of the logits to 8 bits: 0.02.
#include "kernels/head_loss/head_loss.h"

#include <vector>

#include "codec/test_weight.h"
#include "core/op_sweep.h"
#include "core/ref.h"
#include "kernels/head_loss/head_loss_ref.h"

namespace braid {
namespace {

// A batch with every output.
struct Batch {
  int64_t tokens, vocab, depth;
  TestTensor x, w, weight, loss, lse, dx, dw;
  std::vector<int32_t> targets;
  Batch(int64_t t, int64_t v, int64_t d, DType type)
      : tokens(t),
        vocab(v),
        depth(d),
        x(type, {t, d}, 1),
        w(type, {v, d}, 2),
        weight(DType::f32, {t}, 3, 0.5, 1),
        loss(DType::f32, {t}, 4),
        lse(DType::f32, {t}, 5),
        dx(DType::f32, {t, d}, 6),
        dw(DType::f32, {v, d}, 7),
        targets(static_cast<size_t>(t)) {
    for (int64_t i = 0; i < t; ++i) {
      targets[static_cast<size_t>(i)] = static_cast<int32_t>(i % 5 == 1 ? -1 : (i * 7919 + v - 1) % v);
    }
  }
  HeadLoss op() {
    return {.x = x.view(),
            .w = dense_weight(w.view()),
            .targets = view_of(targets.data(), {tokens}),
            .token_weight = weight.view(),
            .loss = loss.mut(),
            .lse = lse.mut(),
            .dx = dx.mut(),
            .dw = dw.mut(),
            .z = 1e-2f};
  }
};

HeadLossFwd forward_of(const HeadLoss& op) {
  return {.x = op.x, .w = op.w, .targets = op.targets, .loss = op.loss, .lse = op.lse};
}
HeadLossBwd backward_of(const HeadLoss& op) {
  return {.dloss = op.token_weight,
          .x = op.x,
          .w = op.w,
          .targets = op.targets,
          .dx = op.dx,
          .dw = op.dw,
          .z = op.z,
          .seqs = op.seqs};
}

TEST(HeadLoss, GradientIsTheDerivativeOfTheLossAndMasksAreSilent) {
  Batch b(4, 7, 3, DType::f32);
  const HeadLoss op = b.op();
  std::vector<double> inputs = to_doubles(op.x);
  const auto w = to_doubles(b.w.view()), weights = to_doubles(op.token_weight), before = to_doubles(op.dw);
  inputs.insert(inputs.end(), w.begin(), w.end());
  using Complex = std::complex<double>;
  std::vector<double> losses(4);
  const auto gradient = complex_step(inputs, [&](const std::vector<Complex>& p) {
    const std::vector<Complex> own(p.begin() + 12, p.end());
    Complex total = 0, loss, lse;
    for (size_t t = 0; t < 4; ++t) {
      head_loss_ref<Complex>(7, 3, &p[t * 3], own, b.targets[t], loss, lse, nullptr);
      losses[t] = loss.real();
      if (b.targets[t] >= 0) total += weights[t] * (loss + static_cast<double>(op.z) * lse * lse);
    }
    return total;
  });
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, op);
  EXPECT_EQ(element(op.loss, 1), 0);
  for (int64_t t = 0; t < 4; ++t) EXPECT_NEAR(element(op.loss, t), losses[static_cast<size_t>(t)], 1e-6);
  for (int64_t d = 0; d < 3; ++d) EXPECT_EQ(element(op.dx, 3 + d), 0);
  for (size_t i = 0; i < 12; ++i) EXPECT_NEAR(element(op.dx, static_cast<int64_t>(i)), gradient[i], 2e-6);
  for (size_t i = 0; i < 21; ++i) {
    EXPECT_NEAR(element(op.dw, static_cast<int64_t>(i)) - before[i], gradient[i + 12], 2e-6);
  }
}

// Weights known before or only after the losses: the same bits, in every row.
TEST(HeadLoss, SeparateForwardAndBackwardAreBitIdentical) {
  for (const DType type : {DType::f32, DType::bf16}) {
    Batch one(300, 53, 18, type), two(300, 53, 18, type);
    SeqMap seqs;
    for (const int64_t len : {40, 257, 3}) seqs.add(len);
    HeadLoss fused = one.op(), apart = two.op();
    fused.seqs = apart.seqs = &seqs;
    for (const Row<HeadLoss>& row : HeadLoss::rows()) {
      if (refusal(row, fused, Device::cpu)) continue;
      Arena arena;
      Ctx ctx{.arena = arena};
      run_row(ctx, fused, row);
      run_row(ctx, forward_of(apart), row_named<HeadLossFwd>(row.name));
      run_row(ctx, backward_of(apart), row_named<HeadLossBwd>(row.name));
      expect_outputs(apart, fused, 0, true, std::string("row ") + row.name);
    }
  }
}

// Lengths around tiles, pieces, groups and super blocks, a vocabulary that is a prime, documents of any length, tokens
// that are all masked.
TEST(HeadLoss, EveryRowAgreesWithTheReference) {
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const auto& [tokens, vocab, depth] :
         {std::array<int64_t, 3>{1, 1, 1}, {37, 503, 19}, {261, 67, 50}, {2100, 3, 5}, {3, 8300, 5}}) {
      Batch b(tokens, vocab, depth, type);
      HeadLoss op = b.op();
      sweep(op, 2e-5);
      SeqMap seqs;
      seqs.add(tokens / 3);
      seqs.add(0);
      seqs.add(tokens - tokens / 3);
      op.seqs = &seqs;
      op.z = 0;
      op.token_weight = {};
      sweep(op, 2e-5);
      std::fill(b.targets.begin(), b.targets.end(), -1);
      sweep(op, 2e-5);
      op.dx = op.dw = op.lse = {};
      sweep(op, 2e-5);
      Batch apart(tokens, vocab, depth, type);
      sweep(forward_of(apart.op()), 2e-5);
      sweep(backward_of(apart.op()), 2e-5);
    }
  }
}

// A frozen head of any format: decoded on the fly, over several depth blocks of both products.
TEST(HeadLoss, QuantisedWeightsAreDecoded) {
  for (const Format format : {Format::f16, Format::f8_e4m3, Format::nvfp4}) {
    for (const DType type : {DType::f32, DType::bf16}) {
      for (const auto& [tokens, vocab, depth] : {std::array<int64_t, 3>{9, 203, 48}, {3, 70, 1056}, {3, 8300, 16}}) {
        Batch b(tokens, vocab, depth, type);
        const TestWeight w(format, vocab, depth, 9, 1 / std::sqrt(static_cast<double>(depth)));
        HeadLoss op = b.op();
        op.w = w.weight();
        op.dw = {};
        Arena arena;
        EXPECT_STRNE(choose(Ctx{.arena = arena}, op).name, "ref") << name_of(format);
        sweep(op, 2e-5, 0.04);  // few logits of a row carry its gradient: rounding weighs more
        TestTensor dx(DType::bf16, {tokens, depth}, 8);
        op.dx = dx.mut();
        sweep(op, 0.04, 0.04);
      }
    }
  }
}

// Cutting a batch between sequences changes no bit, in any row.
TEST(HeadLoss, MicroBatchesAreBitIdenticalToTheBatch) {
  const int64_t lens[] = {3, 288, 64, 40};
  for (const DType type : {DType::f32, DType::bf16}) {
    Batch whole(395, 53, 18, type), parts(395, 53, 18, type);
    for (const Row<HeadLoss>& row : HeadLoss::rows()) {
      SeqMap all;
      for (int64_t len : lens) all.add(len);
      HeadLoss op = whole.op();
      op.seqs = &all;
      if (refusal(row, op, Device::cpu)) continue;
      Arena arena;
      Ctx ctx{.arena = arena};
      run_row(ctx, op, row);
      const HeadLoss from = parts.op();
      for (size_t cut : {size_t{0}, size_t{2}}) {
        SeqMap some;
        for (size_t i = cut; i < cut + 2; ++i) some.add(lens[i]);
        const int64_t first = cut == 0 ? 0 : 291, n = some.tokens();
        HeadLoss part = from;
        part.x = from.x.slice(0, first, n);
        part.targets = from.targets.slice(0, first, n);
        part.token_weight = from.token_weight.slice(0, first, n);
        part.loss = from.loss.slice(0, first, n);
        part.lse = from.lse.slice(0, first, n);
        part.dx = from.dx.slice(0, first, n);
        part.seqs = &some;
        run_row(ctx, part, row);
      }
      expect_outputs(from, op, 0, true, std::string("micro-batches in row ") + row.name);
    }
  }
}

}  // namespace
}  // namespace braid
