// Tolerances: 1e-6 of the root mean square where one rounding decides; gradients of a large vocabulary 1e-5, since the
// target's is sqrt(V) times their root mean square.
#include "kernels/cross_entropy/cross_entropy.h"

#include "core/op_sweep.h"
#include "core/ref.h"
#include "kernels/cross_entropy/cross_entropy_ref.h"

namespace braid {
namespace {

TEST(CrossEntropy, BackwardIsTheDerivativeAndZeroWhereMasked) {
  const int64_t tokens = 4, vocab = 7;
  TestTensor logits(DType::f32, {tokens, vocab}, 1, 3), dloss(DType::f32, {tokens}, 2);
  std::vector<int32_t> targets = {2, -1, 7, 0};  // masked, and of another part of the vocabulary
  const View ids = view_of(targets.data(), {tokens});
  const auto upstream = to_doubles(dloss.view());
  using Complex = std::complex<double>;
  const auto gradient = complex_step(to_doubles(logits.view()), [&](const std::vector<Complex>& p) {
    std::vector<Complex> loss(4), lse(4);
    cross_entropy_fwd_ref(tokens, vocab, p, to_doubles(ids), loss, lse);
    Complex sum = 0;
    for (size_t i = 0; i < loss.size(); ++i) sum += upstream[i] * loss[i];
    return sum;
  });
  TestTensor loss(DType::f32, {tokens}, 3), lse(DType::f32, {tokens}, 4), dlogits(DType::f32, {tokens, vocab}, 5);
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, CrossEntropyFwd{.logits = logits.view(), .targets = ids, .loss = loss.mut(), .lse = lse.mut()});
  run(ctx,
      CrossEntropyBwd{
          .dloss = dloss.view(), .logits = logits.view(), .targets = ids, .lse = lse.view(), .dlogits = dlogits.mut()});
  EXPECT_EQ(element(loss.view(), 1), 0);
  for (int64_t i = 0; i < tokens * vocab; ++i)
    EXPECT_NEAR(element(dlogits.view(), i), gradient[static_cast<size_t>(i)], 1e-6);
}

// The real vocabulary, and lengths around the vectors; logits are a slice of something wider, as of two heads.
TEST(CrossEntropy, EveryRowAgreesWithTheReference) {
  for (const int64_t vocab : {1, 7, 16, 63, 64, 65, 1000, 131072}) {
    const int64_t tokens = vocab > 1000 ? 3 : 70;
    TestTensor wide(DType::f32, {tokens, vocab + 3}, 1, 4), dloss(DType::f32, {tokens}, 2),
        loss(DType::f32, {tokens}, 3), lse(DType::f32, {tokens}, 4), dlogits(DType::f32, {tokens, vocab}, 5);
    const View logits = wide.view().slice(1, 2, vocab);
    std::vector<int32_t> targets(static_cast<size_t>(tokens));
    for (int64_t t = 0; t < tokens; ++t) {
      targets[static_cast<size_t>(t)] = static_cast<int32_t>(t % 5 == 1   ? -1
                                                             : t % 5 == 2 ? vocab
                                                                          : (t * 7919 + vocab - 1) % vocab);
    }
    const View ids = view_of(targets.data(), {tokens});
    const CrossEntropyFwd fwd{.logits = logits, .targets = ids, .loss = loss.mut(), .lse = lse.mut()};
    sweep(fwd, 1e-6);
    Arena arena;
    Ctx ctx{.arena = arena};
    run(ctx, fwd);
    sweep(
        CrossEntropyBwd{
            .dloss = dloss.view(), .logits = logits, .targets = ids, .lse = lse.view(), .dlogits = dlogits.mut()},
        1e-5);
  }
}

// A failed run must be visible: NaN anywhere in a row, or an infinite logit, gives a NaN loss in every variant. Logits
// of -inf are excluded tokens.
TEST(CrossEntropy, NaNIsSeenAndMinusInfinityIsExcluded) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (const size_t at : {size_t{0}, size_t{70}, size_t{130}}) {
      std::vector<float> logits(131, 0.5f);
      logits[at] = bad;
      const std::vector<int32_t> target = {1};
      for (const Row<CrossEntropyFwd>& row : CrossEntropyFwd::rows()) {
        TestTensor loss(DType::f32, {1}, 1);
        Arena arena;
        Ctx ctx{.arena = arena};
        run_row(
            ctx,
            CrossEntropyFwd{
                .logits = view_of(logits.data(), {1, 131}), .targets = view_of(target.data(), {1}), .loss = loss.mut()},
            row);
        if (bad < 0) {
          EXPECT_NEAR(element(loss.view(), 0), std::log(130.0), 1e-6) << row.name;
        } else {
          EXPECT_TRUE(std::isnan(element(loss.view(), 0))) << row.name << " " << bad << " at " << at;
        }
      }
    }
  }
}

TEST(CrossEntropy, ATargetOutsideTheVocabularyIsABug) {
  const std::vector<float> logits(5);
  const std::vector<int32_t> target = {6};
  TestTensor loss(DType::f32, {1}, 1);
  Arena arena;
  Ctx ctx{.arena = arena};
  EXPECT_EXIT(run(ctx, CrossEntropyFwd{.logits = view_of(logits.data(), {1, 5}),
                                       .targets = view_of(target.data(), {1}),
                                       .loss = loss.mut()}),
              testing::ExitedWithCode(70), "target 6 of 5");
}

TEST(CrossEntropy, LargeLogitsDoNotOverflow) {
  std::vector<float> logits = {1e4f, 1e4f - 1, -1e4f};
  std::vector<int32_t> target = {1};
  TestTensor loss(DType::f32, {1}, 1);
  sweep(
      CrossEntropyFwd{
          .logits = view_of(logits.data(), {1, 3}), .targets = view_of(target.data(), {1}), .loss = loss.mut()},
      1e-6);
}

}  // namespace
}  // namespace braid
