#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "sys/error.h"

namespace braid::engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::map<int32_t, int> draws(const std::vector<float>& logits, const SamplingOptions& options, int count,
                             const std::vector<int32_t>& seen = {}) {
  std::map<int32_t, int> found;
  for (int i = 0; i < count; ++i) ++found[sample(logits, options, seen, static_cast<uint64_t>(i))];
  return found;
}
std::set<int32_t> support(const std::vector<float>& logits, const SamplingOptions& options) {
  std::set<int32_t> ids;
  for (const auto& entry : draws(logits, options, 400)) ids.insert(entry.first);
  return ids;
}

TEST(Sampler, GreedyTakesTheLowestIdOfATie) {
  EXPECT_EQ(sample(std::vector<float>{1, 3, 3, 2}, {}, {}, 0), 1);
  EXPECT_EQ(sample(std::vector<float>{-kInfinity, -5, -5}, {}, {}, 7), 1);
  EXPECT_EQ(sample(std::vector<float>{0.0f, -0.0f}, {}, {}, 0), 0);
}

TEST(Sampler, ALowTemperatureIsGreedyAndAHighOneIsEven) {
  const std::vector<float> logits = {1, 2, 1.5f, -3};
  for (double t : {1e-300, 1e-30, 1e-3})
    EXPECT_EQ(draws(logits, {.temperature = t}, 50), (std::map<int32_t, int>{{1, 50}}));
  for (double t : {1e9, 1e300}) {
    const auto even = draws(logits, {.temperature = t}, 4000);
    ASSERT_EQ(even.size(), 4u);
    for (const auto& entry : even) EXPECT_NEAR(entry.second, 1000, 120) << entry.first;
  }
}

TEST(Sampler, DrawsFollowTheProbabilities) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  const auto found = draws(logits, {.temperature = 1, .seed = 3}, 10000);
  EXPECT_NEAR(found.at(0), 5000, 200);
  EXPECT_NEAR(found.at(1), 3000, 200);
  EXPECT_NEAR(found.at(2), 2000, 200);
}

TEST(Sampler, EachCutKeepsTheBest) {
  const std::vector<float> logits = {std::log(0.1f), std::log(0.4f), std::log(0.2f), std::log(0.3f)};
  using Ids = std::set<int32_t>;
  EXPECT_EQ(support(logits, {.temperature = 1}), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(support(logits, {.temperature = 1, .top_k = 2}), (Ids{1, 3}));
  EXPECT_EQ(support(logits, {.temperature = 1, .top_k = 99}), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(support(logits, {.temperature = 1, .top_p = 0.65}), (Ids{1, 3}));
  EXPECT_EQ(support(logits, {.temperature = 1, .top_p = 1e-9}), (Ids{1}));
  EXPECT_EQ(support(logits, {.temperature = 1, .min_p = 0.45}), (Ids{1, 2, 3}));
  EXPECT_EQ(support(logits, {.temperature = 1, .min_p = 1}), (Ids{1}));
  // Ties at the edge of top-k: the lower ids stay.
  EXPECT_EQ(support({1, 1, 1, 1}, {.temperature = 1, .top_k = 2}), (Ids{0, 1}));
}

TEST(Sampler, APenaltyCountsAgainstWhatWasSeen) {
  const std::vector<float> logits = {2, 1.9f, -1, -1.1f};
  EXPECT_EQ(sample(logits, {.repeat_penalty = 1.5}, std::vector<int32_t>{0, 0}, 0), 1);
  EXPECT_EQ(sample(logits, {.repeat_penalty = 1.5}, std::vector<int32_t>{0, 1}, 0), 0);
  // A negative logit moves down too: multiplied, not divided.
  EXPECT_EQ(sample(std::vector<float>{-1, -1.1f}, {.repeat_penalty = 1.5}, std::vector<int32_t>{0}, 0), 1);
  // However often it was seen, it is penalised once.
  EXPECT_EQ(sample(std::vector<float>{2, 1.2f}, {.repeat_penalty = 1.5}, std::vector<int32_t>{0, 0, 0}, 0), 0);
}

TEST(Sampler, SeedAndPositionNameTheDraw) {
  const std::vector<float> logits(64, 0.0f);
  const auto text = [&](uint64_t seed) {
    std::vector<int32_t> ids;
    for (uint64_t i = 0; i < 32; ++i) ids.push_back(sample(logits, {.temperature = 1, .seed = seed}, {}, i));
    return ids;
  };
  const auto ids = text(5);
  EXPECT_EQ(ids, text(5));
  EXPECT_NE(ids, text(6));
  EXPECT_GT(std::set<int32_t>(ids.begin(), ids.end()).size(), 1u);
}

TEST(Sampler, LogitsThatAreNoNumbersFailTheRun) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::vector<float>& logits :
       {std::vector<float>{0, nan, 1}, {nan, nan}, {0, kInfinity}, {-kInfinity, -kInfinity}}) {
    for (double temperature : {0.0, 0.7}) {
      try {
        sample(logits, {.temperature = temperature}, {}, 0);
        ADD_FAILURE() << "no error";
      } catch (const Error& error) {
        EXPECT_EQ(error.exit_code(), 2) << error.what();
      }
    }
  }
}

}  // namespace
}  // namespace braid::engine
