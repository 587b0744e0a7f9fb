// Tolerance: FP32 results of FP64 arithmetic, 1e-6.
#include "kernels/cross_entropy/cross_entropy.h"

#include "core/op_sweep.h"
#include "core/ref.h"
#include "kernels/cross_entropy/cross_entropy_ref.h"

namespace braid {
namespace {

TEST(CrossEntropy, BackwardIsTheDerivativeAndMasksAreSilent) {
  const int64_t tokens = 4, vocab = 7;
  TestTensor logits(DType::f32, {tokens, vocab}, 1, 3), dloss(DType::f32, {tokens}, 2);
  std::vector<int32_t> targets = {2, -1, 6, 0};
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
