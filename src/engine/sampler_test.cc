#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/philox.h"
#include "engine/language_model.h"
#include "engine/ranking.h"
#include "support/error_of.h"
#include "support/folder.h"

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

TEST(SamplingOf, GenerationConfigsSayAllByMinusOne) {
  const braid::support::Folder folder;
  const io::ModelPath path{.name = "x", .folder = folder.path(), .weights = folder.path()};
  folder.write("generation_config.json", R"({"top_k": -1, "top_p": 0.5})");
  EXPECT_EQ(sampling_of(path, {.top_k = 7}).top_k, 0);
  EXPECT_EQ(sampling_of(path, {.top_k = 7}).top_p, 0.5);
  folder.write("generation_config.json", R"({"top_k": 4})");
  EXPECT_EQ(sampling_of(path, {.top_k = 7}).top_k, 4);
  folder.write("generation_config.json", R"({"top_k": -2})");
  EXPECT_NE(braid::support::error_of([&] { sampling_of(path, {}); }).find("top_k"), std::string::npos);
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

// 2.0, 1.9 and 1.0 with penalties on what the answer holds: the prompt's tokens do not count.
TEST(Sampler, PenaltiesCountTheAnswer) {
  const std::vector<float> logits = {2.0f, 1.9f, 1.0f};
  const std::vector<int32_t> seen = {0, 0, 1, 1, 1, 0};
  const auto greedy = [&](const SamplingOptions& options, size_t answer_tokens) {
    return sample(logits, options, seen, 0, answer_tokens);
  };
  EXPECT_EQ(greedy({.presence_penalty = 0.5}, 0), 0);
  EXPECT_EQ(greedy({.presence_penalty = 0.5}, 1), 1);
  EXPECT_EQ(greedy({.presence_penalty = 0.5}, 6), 0);   // both lose the same
  EXPECT_EQ(greedy({.frequency_penalty = 0.2}, 4), 0);  // 1.8, 1.3, 1
  EXPECT_EQ(greedy({.frequency_penalty = 0.5}, 4), 0);  // 1.5, 0.4, 1
  EXPECT_EQ(greedy({.frequency_penalty = 0.5}, 6), 2);  // 0.5, 0.4, 1
  EXPECT_EQ(greedy({.presence_penalty = -1}, 1), 0);
}

TEST(Sampler, LogprobsAreTheSoftmaxBestFirst) {
  const std::vector<float> logits = {std::log(0.1f), std::log(0.4f), std::log(0.2f), std::log(0.3f)};
  const std::vector<TokenLogprob> all = logprobs_of(logits, 2, 9);
  const std::vector<std::pair<int32_t, double>> expected = {{2, 0.2}, {1, 0.4}, {3, 0.3}, {2, 0.2}, {0, 0.1}};
  ASSERT_EQ(all.size(), expected.size());
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].id, expected[i].first);
    EXPECT_NEAR(std::exp(all[i].logprob), expected[i].second, 1e-6);
  }
  EXPECT_EQ(logprobs_of(logits, 0, 0).size(), 1U);
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
  // It is penalised once, however often it was seen.
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

// What sample does, written down with a sort of the whole vocabulary.
int32_t sample_by_sorting(const std::vector<float>& logits, const SamplingOptions& o, uint64_t position) {
  std::vector<std::pair<double, int32_t>> list;  // descending logit, then ascending id
  for (size_t i = 0; i < logits.size(); ++i)
    list.emplace_back(-static_cast<double>(logits[i]), static_cast<int32_t>(i));
  std::sort(list.begin(), list.end());
  if (o.top_k > 0 && o.top_k < std::ssize(list)) list.resize(static_cast<size_t>(o.top_k));
  const double top = list[0].first;
  double sum = 0, mass = 0;
  for (const auto& entry : list) sum += std::exp((top - entry.first) / o.temperature);
  std::vector<double> p;
  for (const auto& entry : list)
    p.push_back(static_cast<double>(static_cast<float>(
        static_cast<double>(static_cast<float>(std::exp((top - entry.first) / o.temperature))) / sum)));
  size_t n = 0;
  while (n < p.size() && (n == 0 || (mass < o.top_p && p[n] >= o.min_p * p[0]))) mass += p[n++];
  double point = static_cast<double>(uniform(philox({.seed = o.seed, .stream = 0x5a3b1e}, position)[0])) * mass;
  for (size_t i = 0; i < n; ++i) {
    point -= p[i];
    if (point < 0) return list[i].second;
  }
  return list[n - 1].second;
}

TEST(Sampler, DrawsAreThoseOfAFullSort) {
  uint64_t position = 0;
  for (const int64_t vocabulary : {1, 3, 64, 65, 257, 1500}) {
    for (const double spread : {0.0, 0.3, 3.0, 12.0}) {
      std::vector<float> logits(static_cast<size_t>(vocabulary));
      for (size_t i = 0; i < logits.size(); ++i) {
        const auto n = normal4({.seed = 77}, i + static_cast<size_t>(vocabulary));
        logits[i] = static_cast<float>(std::round(8 * spread * static_cast<double>(n[0])) / 8);  // many ties
      }
      logits[logits.size() / 2] = logits.size() > 1 ? -kInfinity : 0;
      for (const SamplingOptions& o : std::vector<SamplingOptions>{{.temperature = 1},
                                                                   {.temperature = 0.2},
                                                                   {.temperature = 40},
                                                                   {.temperature = 1, .top_p = 0.95},
                                                                   {.temperature = 1.5, .top_p = 0.999},
                                                                   {.temperature = 1, .min_p = 0.05},
                                                                   {.temperature = 1, .top_p = 0.8, .min_p = 0.01},
                                                                   {.temperature = 1, .top_k = 100},
                                                                   {.temperature = 2, .top_k = 50, .top_p = 0.9}}) {
        for (int i = 0; i < 12; ++i, ++position)
          ASSERT_EQ(sample(logits, o, {}, position), sample_by_sorting(logits, o, position))
              << vocabulary << " tokens, spread " << spread << ", T " << o.temperature << ", position " << position;
      }
    }
  }
}

TEST(Sampler, OnlyWhatIsLookedAtIsSorted) {
  std::vector<Candidate> list;
  for (int32_t i = 0; i < 100000; ++i) list.push_back({static_cast<float>(i * 7919 % 100003), i});
  Ranking ranking(list);
  std::sort(list.begin(), list.end(), better);
  EXPECT_EQ(ranking.sorted(), 0u);
  for (const size_t i : {0, 63, 64, 300, 5000}) {
    EXPECT_EQ(ranking.at(i).id, list[i].id);
    EXPECT_LE(ranking.sorted(), std::max<size_t>(64, 4 * i));
  }
  EXPECT_EQ(ranking.at(list.size() - 1).id, list.back().id);
  EXPECT_EQ(ranking.sorted(), list.size());
}

TEST(Sampler, NonFiniteLogitsFailTheRun) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::vector<float>& logits :
       {std::vector<float>{0, nan, 1}, {nan, nan}, {0, kInfinity}, {-kInfinity, -kInfinity}}) {
    for (double temperature : {0.0, 0.7}) {
      const auto error = support::caught([&] { sample(logits, {.temperature = temperature}, {}, 0); });
      EXPECT_TRUE(error && error->exit_code() == 2) << temperature;
    }
  }
}

}  // namespace
}  // namespace braid::engine
