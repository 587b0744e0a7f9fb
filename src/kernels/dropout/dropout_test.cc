// Tolerance: one FP32 product against FP64, 1e-6 of the root mean square; BF16 outputs 1/64. Which channels are kept is
// exact, and bit-for-bit claims are memcmp.
#include "kernels/dropout/dropout.h"

#include "core/op_sweep.h"

namespace braid {
namespace {

SeqMap ragged() {
  SeqMap map;
  map.add(5, 0, 0, 77);
  map.add(1, 3, 1, 12);
  map.add(7, 0, 2, int64_t{1} << 40);
  return map;
}

TEST(Dropout, EveryRowAgreesWithTheReference) {
  const SeqMap seqs = ragged();
  for (const int64_t width : {1, 63, 64, 100, 129, 336}) {
    for (const DType from : {DType::f32, DType::bf16}) {
      for (const DType to : {DType::f32, DType::bf16}) {
        TestTensor x(from, {13, width}, 1, 1, 8), y(to, {13, width}, 2);  // never 0: a dropped channel shows
        const double tolerance = to == DType::bf16 ? 2e-2 : 1e-6;
        const DropoutKey key{.seed = 5, .step = 9, .layer = 3, .op = 1};
        sweep(DropoutFwd{.x = x.view(), .y = y.mut(), .seqs = &seqs, .rate = 0.3f, .key = key}, tolerance);
        sweep(DropoutBwd{.dy = x.view(), .dx = y.mut(), .rate = 0.1f, .key = key}, tolerance);
      }
    }
  }
}

std::vector<float> dropped(const DropoutKey& key, const SeqMap& seqs, int64_t width, float rate) {
  std::vector<float> x(static_cast<size_t>(seqs.tokens() * width), 1), y(x.size());
  Arena arena;
  Ctx ctx{.arena = arena, .threads = 2};
  run(ctx, DropoutFwd{.x = view_of(x.data(), {seqs.tokens(), width}),
                      .y = mut_view_of(y.data(), {seqs.tokens(), width}),
                      .seqs = &seqs,
                      .rate = rate,
                      .key = key});
  return y;
}

// The sum of kept channels has the expectation of the input: 128,000 channels, within five deviations.
TEST(Dropout, KeepsTheMean) {
  for (const float rate : {0.0f, 0.1f, 0.5f, 0.9f}) {
    double sum = 0;
    for (float y : dropped({.seed = 1}, SeqMap::one(250), 512, rate)) sum += static_cast<double>(y);
    const double r = static_cast<double>(rate);
    EXPECT_NEAR(sum / 128000, 1, 5 * std::sqrt(r / (1 - r) / 128000) + 1e-6) << rate;
  }
}

// A token's mask depends on its sample and position, not on its place in the batch or the split into calls.
TEST(Dropout, PackingChangesNothing) {
  const int64_t width = 150;
  const std::vector<float> together = dropped({.seed = 2}, ragged(), width, 0.4f);
  for (const Seq& seq : ragged().seqs) {
    for (int64_t t = 0; t < seq.len; ++t) {
      SeqMap alone;
      alone.add(1, seq.pos0 + t, 0, seq.sample_id);
      const std::vector<float> y = dropped({.seed = 2}, alone, width, 0.4f);
      EXPECT_EQ(std::memcmp(y.data(), &together[static_cast<size_t>((seq.start + t) * width)], y.size() * 4), 0);
    }
  }
}

TEST(Dropout, EveryPartOfTheKeyCounts) {
  SeqMap samples;
  samples.add(2, 0, 0, 1);
  samples.add(2, 0, 0, 2);
  const DropoutKey key{.seed = 1, .step = 2, .layer = 3, .op = 4};
  const std::vector<float> y = dropped(key, samples, 64, 0.5f);
  EXPECT_EQ(y, dropped(key, samples, 64, 0.5f));
  for (size_t i = 1; i < 4; ++i) EXPECT_NE(std::memcmp(&y[0], &y[i * 64], 256), 0) << "token " << i;
  for (const DropoutKey& other : {DropoutKey{2, 2, 3, 4}, DropoutKey{1, 3, 3, 4}, DropoutKey{1, 2, 4, 4},
                                  DropoutKey{1, 2, 3, 5}, DropoutKey{1, 2, 4, 3}}) {
    EXPECT_NE(y, dropped(other, samples, 64, 0.5f));
  }
}

// Forward and backward of one key keep the same channels: the gradient of a dropped one is zero.
TEST(Dropout, BackwardIsTheSameMap) {
  const SeqMap seqs = ragged();
  TestTensor x(DType::f32, {13, 80}, 1), y(DType::f32, {13, 80}, 2), dx(DType::f32, {13, 80}, 3);
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, DropoutFwd{.x = x.view(), .y = y.mut(), .seqs = &seqs, .rate = 0.5f, .key = {.seed = 4}});
  run(ctx, DropoutBwd{.dy = x.view(), .dx = dx.mut(), .seqs = &seqs, .rate = 0.5f, .key = {.seed = 4}});
  EXPECT_EQ(y.bytes, dx.bytes);
}

}  // namespace
}  // namespace braid
