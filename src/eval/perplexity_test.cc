// The windows by hand, and the losses against log-softmax of golden logits in double.
#include "eval/perplexity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "io/safetensors.h"
#include "models/load.h"
#include "support/data.h"
#include "sys/error.h"

namespace braid::eval {
namespace {

const std::filesystem::path kFolder = std::filesystem::path(support::data()) / "hf" / "nemotron-h-latent-mtp";

TEST(Windows, SideBySideTheSecondHalf) {
  const auto w = plan_windows(25, 8, 0);
  ASSERT_EQ(w.size(), 3u);  // the last token belongs to an unfinished window
  EXPECT_EQ(w[2].begin, 16);
  EXPECT_EQ(w[2].end, 24);
  EXPECT_EQ(w[2].first, 21);  // rows 4, 5 and 6 predict tokens 5, 6 and 7 of the window
}

TEST(Windows, WithAStrideEveryTokenButTheFirstOnce) {
  for (const int64_t stride : {1, 3, 7}) {
    int64_t next = 1;
    for (const Window& w : plan_windows(30, 8, stride)) {
      EXPECT_EQ(w.first, next);
      EXPECT_EQ(w.end - w.begin, 8);
      EXPECT_GT(w.first, w.begin);
      next = w.end;
    }
    EXPECT_EQ(next, 30);
  }
}

TEST(Windows, AShortTextIsOneWindow) {
  EXPECT_EQ(plan_windows(5, 512, 0)[0].first, 3);
  EXPECT_EQ(plan_windows(2, 512, 4)[0].end, 2);
  EXPECT_THROW(plan_windows(2, 512, 0), Error);
  EXPECT_THROW(plan_windows(1, 512, 4), Error);
  EXPECT_THROW(plan_windows(0, 512, 4), Error);
}

class Golden : public testing::Test {
 protected:
  Golden() : files_(kFolder / "golden.safetensors") {
    const View ids = files_.need("ids@0");
    for (int64_t i = 0; i < ids.count(); ++i) ids_.push_back(static_cast<int32_t>(element(ids, i)));
  }
  // Loss of token t, predicted by row t - 1 of the golden logits.
  double loss(int64_t t) const {
    const View logits = files_.need("logits@0");
    const int64_t vocab = logits.dim(1);
    double sum = 0;
    for (int64_t v = 0; v < vocab; ++v) sum += std::exp(element(logits, (t - 1) * vocab + v));
    return std::log(sum) - element(logits, (t - 1) * vocab + ids_[static_cast<size_t>(t)]);
  }
  static engine::Runner runner(int64_t chunk) {
    return {models::load_model({"golden", kFolder, kFolder}),
            {.numerics = Numerics::serving(DType::f32), .context = 512, .chunk = chunk}};
  }

  io::Safetensors files_;
  std::vector<int32_t> ids_;
};

TEST_F(Golden, PerplexityErrorAndCount) {
  const auto tokens = std::ssize(ids_);
  double sum = 0, square = 0;
  int64_t n = 0;
  for (int64_t t = tokens / 2 + 1; t < tokens; ++t, ++n) sum += loss(t), square += loss(t) * loss(t);
  const double mean = sum / static_cast<double>(n);
  for (const int64_t chunk : {7, 512}) {
    auto r = runner(chunk);
    const Perplexity p = perplexity(r, ids_, plan_windows(tokens, 512, 0), {}, [](int64_t) { return true; });
    EXPECT_EQ(p.tokens, n);
    EXPECT_NEAR(p.value() / std::exp(mean), 1, 1e-4);
    const double variance = square / static_cast<double>(n) - mean * mean;
    EXPECT_NEAR(p.error() / p.value(), std::sqrt(variance / static_cast<double>(n - 1)), 1e-4);
  }
}

TEST_F(Golden, BosTakesTheFirstPlaceAndIsNotScored) {
  auto r = runner(512);
  const auto windows = plan_windows(std::ssize(ids_), 512, 511);
  const auto none = [](int64_t) { return true; };
  const Perplexity same = perplexity(r, ids_, windows, ids_[0], none), plain = perplexity(r, ids_, windows, {}, none);
  EXPECT_EQ(same.loss, plain.loss);
  EXPECT_EQ(plain.tokens, std::ssize(ids_) - 1);
  EXPECT_NE(perplexity(r, ids_, windows, ids_[0] + 1, none).loss, plain.loss);
}

TEST_F(Golden, StopsWhenAsked) {
  auto r = runner(16);
  int64_t read = 0;
  perplexity(r, ids_, plan_windows(std::ssize(ids_), 32, 0), {}, [&](int64_t done) { return (read = done) < 48; });
  EXPECT_EQ(read, 48);
}

}  // namespace
}  // namespace braid::eval
