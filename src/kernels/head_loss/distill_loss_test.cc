// Tolerances as in head_loss_test.cc, but 0.04 for BF16 operands: the gradient is a difference of probabilities.
#include "kernels/head_loss/distill_loss.h"

#include <vector>

#include "codec/test_weight.h"
#include "core/op_sweep.h"
#include "core/ref.h"
#include "kernels/head_loss/distill_loss_ref.h"

namespace braid {
namespace {

constexpr int64_t kEntries = 4;

// A batch of a student and a teacher of other width, and the teacher's likeliest entries or some of them.
struct Batch {
  int64_t tokens, vocab, depth, teacher_depth;
  TestTensor x, w, teacher_x, teacher_w, weight, kl, ce, dx, dw;
  std::vector<int32_t> targets, ids;
  std::vector<float> logprobs;
  Batch(int64_t t, int64_t v, int64_t d, int64_t dt, DType type)
      : tokens(t),
        vocab(v),
        depth(d),
        teacher_depth(dt),
        x(type, {t, d}, 1),
        w(type, {v, d}, 2, 1 / std::sqrt(static_cast<double>(d))),
        teacher_x(type, {t, dt}, 3),
        teacher_w(type, {v, dt}, 4, 1 / std::sqrt(static_cast<double>(dt))),
        weight(DType::f32, {t}, 5, 0.5, 1),
        kl(DType::f32, {t}, 6),
        ce(DType::f32, {t}, 7),
        dx(DType::f32, {t, d}, 8),
        dw(DType::f32, {v, d}, 9) {
    for (int64_t i = 0; i < t; ++i) targets.push_back(static_cast<int32_t>(i % 5 == 1 ? -1 : (i * 7919 + v - 1) % v));
    for (int64_t i = 0; i < t; ++i) {  // distinct, the last one missing, 0.3 to 0.9 together
      for (int64_t k = 0; k < kEntries; ++k) {
        ids.push_back(static_cast<int32_t>(k == 3 && i % 3 == 0 ? -1 : (i * 31 + k) % v));
        logprobs.push_back(std::log(0.1f + 0.04f * static_cast<float>((i + k) % 4)));
      }
    }
  }
  DistillLoss op() {
    return {.x = x.view(),
            .w = dense_weight(w.view()),
            .teacher_x = teacher_x.view(),
            .teacher_w = dense_weight(teacher_w.view()),
            .targets = view_of(targets.data(), {tokens}),
            .token_weight = weight.view(),
            .kl = kl.mut(),
            .ce = ce.mut(),
            .dx = dx.mut(),
            .dw = dw.mut(),
            .temperature = 2,
            .kl_weight = 0.7f,
            .ce_weight = 0.3f};
  }
  DistillLoss entries() {
    DistillLoss one = op();
    one.teacher_x = {};
    one.teacher_w = {};
    one.top_ids = view_of(ids.data(), {tokens, kEntries});
    one.top_logprobs = view_of(logprobs.data(), {tokens, kEntries});
    return one;
  }
};

// What the teacher says of a token of a small batch.
Taught taught(const Batch& b, size_t t, const DistillLoss& op) {
  Taught all;
  if (op.top_ids) {
    for (size_t k = t * kEntries; k < (t + 1) * kEntries; ++k) {
      if (b.ids[k] < 0) continue;
      all.ids.push_back(b.ids[k]);
      all.logprobs.push_back(static_cast<double>(b.logprobs[k]));
    }
    return all;
  }
  std::vector<double> logits(static_cast<size_t>(b.vocab));
  const auto x = to_doubles(b.teacher_x.view()), w = to_doubles(b.teacher_w.view());
  const auto depth = static_cast<size_t>(b.teacher_depth);
  for (size_t v = 0; v < logits.size(); ++v) {
    for (size_t d = 0; d < depth; ++d) logits[v] += x[t * depth + d] * w[v * depth + d];
    all.ids.push_back(static_cast<int32_t>(v));
  }
  for (const double l : logits) all.logprobs.push_back(l / 2 - log_sum(logits, 2));
  return all;
}

TEST(DistillLoss, GradientIsTheDerivativeOfTheLossAndMasksAreSilent) {
  for (const bool entries : {false, true}) {
    Batch b(4, 7, 3, 5, DType::f32);
    const DistillLoss op = entries ? b.entries() : b.op();
    std::vector<double> inputs = to_doubles(op.x);
    const auto w = to_doubles(b.w.view()), weights = to_doubles(op.token_weight), before = to_doubles(op.dw);
    inputs.insert(inputs.end(), w.begin(), w.end());
    using Complex = std::complex<double>;
    std::vector<double> kls(4), ces(4);
    const auto gradient = complex_step(inputs, [&](const std::vector<Complex>& p) {
      Complex total = 0;
      for (size_t t = 0; t < 4; ++t) {
        if (b.targets[t] < 0) continue;
        std::vector<Complex> logits(7);
        for (size_t v = 0; v < 7; ++v) {
          for (size_t d = 0; d < 3; ++d) logits[v] += p[t * 3 + d] * p[12 + v * 3 + d];
        }
        Complex kl, ce, log_tail;
        distill_loss_ref(logits, 2, taught(b, t, op), b.targets[t], kl, ce, log_tail);
        kls[t] = kl.real();
        ces[t] = ce.real();
        total += weights[t] * (static_cast<double>(op.kl_weight) * 4 * kl + static_cast<double>(op.ce_weight) * ce);
      }
      return total;
    });
    for (const Row<DistillLoss>& row : DistillLoss::rows()) {
      if (refusal(row, op, Device::cpu)) continue;
      Arena arena;
      Ctx ctx{.arena = arena};
      OwnOutputs<DistillLoss> own(op);
      run_row(ctx, own.op(), row);
      for (int64_t t = 0; t < 4; ++t) {
        EXPECT_NEAR(element(own.op().kl, t), kls[static_cast<size_t>(t)], 2e-6) << row.name;
        EXPECT_NEAR(element(own.op().ce, t), ces[static_cast<size_t>(t)], 2e-6) << row.name;
        EXPECT_GE(element(own.op().kl, t), 0) << row.name;
      }
      for (size_t i = 0; i < 12; ++i) EXPECT_NEAR(element(own.op().dx, static_cast<int64_t>(i)), gradient[i], 2e-6);
      for (size_t i = 0; i < 21; ++i)
        EXPECT_NEAR(element(own.op().dw, static_cast<int64_t>(i)) - before[i], gradient[i + 12], 2e-6) << row.name;
    }
  }
}

// What the student thinks of the tail in long double, where nothing underflows: the loss and its derivatives by the
// quotient of the definition, e_v / sum of the tail's e, not by the op's formula.
TEST(DistillLoss, ATailThatIsSmallerThanAnyNumberHasItsGradient) {
  constexpr int64_t kVocab = 7;
  constexpr double kTemperature = 0.03;
  for (const double gap : {0.5, 2.6, 3.0, 20.0}) {  // 90 nats: a subnormal in FP32; 100: 0; 670: 0 in FP64, too
    TestTensor x(DType::f32, {1, kVocab}, 1), w(DType::f32, {kVocab, kVocab}, 2), kl(DType::f32, {1}, 3),
        dx(DType::f32, {1, kVocab}, 4);
    std::fill_n(w.mut().as<float>(), kVocab * kVocab, 0.0f);
    for (int64_t v = 0; v < kVocab; ++v) {
      w.mut().as<float>(v)[v] = 1;  // logits are x
      x.mut().as<float>()[v] =
          static_cast<float>(v < 2 ? 1 - 0.01 * static_cast<double>(v) : 0.02 * static_cast<double>(v) - gap);
    }
    const std::vector<int32_t> targets = {3}, ids = {0, 1};
    const std::vector<float> logprobs = {std::log(0.5f), std::log(0.2f)};
    DistillLoss op{.x = x.view(),
                   .w = dense_weight(w.view()),
                   .top_ids = view_of(ids.data(), {1, 2}),
                   .top_logprobs = view_of(logprobs.data(), {1, 2}),
                   .targets = view_of(targets.data(), {1}),
                   .kl = kl.mut(),
                   .dx = dx.mut(),
                   .temperature = static_cast<float>(kTemperature)};
    std::vector<long double> e;
    long double sum = 0, tail = 0, want_kl = 0;
    for (int64_t v = 0; v < kVocab; ++v) {
      e.push_back(
          std::exp((static_cast<long double>(x.view().as<float>()[v]) - 1) / static_cast<long double>(op.temperature)));
      sum += e.back();
      tail += v < 2 ? 0 : e.back();
    }
    ASSERT_GT(tail, 0);
    std::vector<long double> p;
    for (const float l : logprobs) p.push_back(std::exp(static_cast<long double>(l)));
    const long double left = 1 - p[0] - p[1];
    for (size_t v = 0; v < 2; ++v) want_kl += p[v] * std::log(p[v] * sum / e[v]);
    want_kl += left * (std::log(left) - std::log(tail / sum));
    for (const Row<DistillLoss>& row : DistillLoss::rows()) {
      if (refusal(row, op, Device::cpu)) continue;
      Arena arena;
      Ctx ctx{.arena = arena};
      OwnOutputs<DistillLoss> own(op);
      run_row(ctx, own.op(), row);
      EXPECT_NEAR(element(own.op().kl, 0), static_cast<double>(want_kl), 1e-5 * static_cast<double>(want_kl))
          << row.name;
      for (int64_t v = 0; v < kVocab; ++v) {
        const auto i = static_cast<size_t>(v);
        const long double taught = v < 2 ? p[i] : left * e[i] / tail;
        EXPECT_NEAR(element(own.op().dx, v), kTemperature * static_cast<double>(e[i] / sum - taught), 2e-6)
            << row.name << " " << gap << " " << v;
      }
    }
  }
}

TEST(DistillLoss, AHeadIsNotApartFromItself) {
  for (const DType type : {DType::f32, DType::bf16}) {
    Batch b(300, 517, 18, 18, type);
    DistillLoss op = b.op();
    op.teacher_x = op.x;
    op.teacher_w = op.w;
    op.ce_weight = 0;
    op.dw = {};
    for (const Row<DistillLoss>& row : DistillLoss::rows()) {
      if (refusal(row, op, Device::cpu)) continue;
      Arena arena;
      Ctx ctx{.arena = arena};
      run_row(ctx, op, row);
      const double bound = std::string(row.name) == "ref" ? 1e-12 : 0;  // whose BF16 x is the same, its sums are not
      for (int64_t t = 0; t < 300; ++t) EXPECT_LE(std::fabs(element(op.kl, t)), bound) << row.name;
      for (int64_t i = 0; i < 300 * 18; ++i) EXPECT_LE(std::fabs(element(op.dx, i)), bound) << row.name;
    }
  }
}

// All entries are the whole distribution, and one of probability 1 is a target.
TEST(DistillLoss, EntriesApproachTheHead) {
  Batch head(37, 53, 18, 11, DType::f32), all(37, 53, 18, 11, DType::f32), hard(37, 53, 18, 11, DType::f32);
  const DistillLoss whole = head.op();
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  for (size_t t = 0; t < 37; ++t) {
    const Taught said = taught(head, t, whole);
    ids.insert(ids.end(), said.ids.begin(), said.ids.end());
    logprobs.insert(logprobs.end(), said.logprobs.begin(), said.logprobs.end());
  }
  DistillLoss listed = all.entries();
  listed.top_ids = view_of(ids.data(), {37, 53});
  listed.top_logprobs = view_of(logprobs.data(), {37, 53});
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, whole);
  run(ctx, listed);
  expect_outputs(listed, whole, 1e-5, false, "all entries");
  const std::vector<float> zeros(37);
  DistillLoss certain = hard.entries();
  certain.temperature = 1;
  certain.top_ids = view_of(hard.targets.data(), {37, 1});
  certain.top_logprobs = view_of(zeros.data(), {37, 1});
  run(ctx, certain);
  for (int64_t t = 0; t < 37; ++t) EXPECT_NEAR(element(certain.kl, t), element(certain.ce, t), 2e-6);
}

TEST(DistillLoss, EveryRowAgreesWithTheReference) {
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const auto& [tokens, vocab, depth] :
         {std::array<int64_t, 3>{1, 5, 1}, {37, 503, 19}, {261, 67, 50}, {2100, 5, 5}, {3, 8300, 5}}) {
      Batch b(tokens, vocab, depth, depth + 30, type), listed(tokens, vocab, depth, 1, type);
      DistillLoss op = b.op();
      sweep(op, 3e-5, 0.04);
      SeqMap seqs;
      seqs.add(tokens / 3);
      seqs.add(0);
      seqs.add(tokens - tokens / 3);
      op.seqs = &seqs;
      op.ce_weight = 0;
      op.token_weight = {};
      sweep(op, 3e-5, 0.04);
      op.dx = op.dw = op.ce = {};
      sweep(op, 3e-5, 0.04);
      sweep(listed.entries(), 3e-5, 0.04);
    }
  }
}

TEST(DistillLoss, ATeacherMayHaveAnyFormat) {
  for (const Format format : {Format::f16, Format::f8_e4m3, Format::nvfp4}) {
    Batch b(9, 203, 18, 1056, DType::f32);
    const TestWeight w(format, 203, 1056, 9, 0.03);
    DistillLoss op = b.op();
    op.teacher_w = w.weight();
    sweep(op, 3e-5, 0.04);
  }
}

// Cutting a batch between sequences changes no bit.
TEST(DistillLoss, MicroBatchesAreBitIdenticalToTheBatch) {
  const int64_t lens[] = {3, 288, 64, 40};
  for (const bool entries : {false, true}) {
    Batch whole(395, 53, 18, 11, DType::f32), parts(395, 53, 18, 11, DType::f32);
    SeqMap all;
    for (int64_t len : lens) all.add(len);
    DistillLoss op = entries ? whole.entries() : whole.op();
    op.seqs = &all;
    Arena arena;
    Ctx ctx{.arena = arena};
    run(ctx, op);
    const DistillLoss from = entries ? parts.entries() : parts.op();
    for (size_t cut : {size_t{0}, size_t{2}}) {
      SeqMap some;
      for (size_t i = cut; i < cut + 2; ++i) some.add(lens[i]);
      const int64_t first = cut == 0 ? 0 : 291, n = some.tokens();
      DistillLoss part = from;
      for (View DistillLoss::*field : {&DistillLoss::x, &DistillLoss::teacher_x, &DistillLoss::targets,
                                       &DistillLoss::token_weight, &DistillLoss::top_ids, &DistillLoss::top_logprobs}) {
        if (part.*field) part.*field = (from.*field).slice(0, first, n);
      }
      for (MutView DistillLoss::*field : {&DistillLoss::kl, &DistillLoss::ce, &DistillLoss::dx})
        part.*field = (from.*field).slice(0, first, n);
      part.seqs = &some;
      run(ctx, part);
    }
    expect_outputs(from, op, 0, true, "micro-batches");
  }
}

}  // namespace
}  // namespace braid
