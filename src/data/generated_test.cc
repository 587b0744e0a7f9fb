// The floor of every generated source against the loss of a perfect predictor on many rows: it knows the rules, which
// the test derives from the rows themselves.
#include "data/generated.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "support/error_of.h"

namespace braid::data {
namespace {

using support::error_of;

Batch rows_of(const Source& source, const RowRules& rules, int64_t count, int64_t first = 0) {
  Batch batch;
  batch.clear();
  const std::string where = "test";
  for (int64_t i = 0; i < count; ++i) {
    RowWriter writer(batch, rules, where, i * rules.length);
    source.row(first + i, writer);
    batch.rows.push_back(std::ssize(batch.ids));
  }
  return batch;
}

// The entropy of the second of a pair given the first, in nats, from counts of pairs.
double conditional_entropy(const std::map<std::pair<int32_t, int32_t>, double>& pairs) {
  std::map<int32_t, double> first;
  double all = 0;
  for (const auto& [pair, n] : pairs) first[pair.first] += n, all += n;
  double nats = 0;
  for (const auto& [pair, n] : pairs) nats -= n * std::log(n / first[pair.first]);
  return nats / all;
}

TEST(Generated, AMarkovChainHasItsEntropyRate) {
  const RowRules rules{.length = 64, .vocabulary = 40};
  for (const int64_t states : {3, 20}) {  // with 3, several steps lead to the same state
    const auto source = make_generated("markov", {.states = states}, rules, 7);
    const Batch batch = rows_of(*source, rules, 2000);
    ASSERT_EQ(std::ssize(batch.ids), 2000 * 64);
    EXPECT_EQ(batch.trained, 2000 * 64);
    std::map<std::pair<int32_t, int32_t>, double> pairs;
    std::map<int32_t, double> states_seen;
    for (size_t i = 0; i < batch.ids.size(); ++i) {
      ++pairs[{batch.ids[i], batch.targets[i]}];
      ++states_seen[batch.ids[i]];
    }
    EXPECT_NEAR(conditional_entropy(pairs), *source->entropy_floor(), 0.01) << states;
    for (const auto& [state, n] : states_seen)
      EXPECT_NEAR(n / (2000 * 64), 1.0 / static_cast<double>(states), 0.01) << state;
  }
}

TEST(Generated, EveryEquationHolds) {
  const RowRules rules{.length = 63, .vocabulary = 128};
  const auto source = make_generated("modular", {.modulus = 11}, rules, 1);
  const Batch batch = rows_of(*source, rules, 300);
  ASSERT_EQ(std::ssize(batch.ids), 300 * 60);  // twelve equations of five tokens
  for (int64_t row = 0; row < 300; ++row) {
    const auto at = [&](int64_t i) { return batch.targets[static_cast<size_t>(row * 60 + i)]; };
    EXPECT_EQ(batch.ids[static_cast<size_t>(row * 60)], 0);
    for (int64_t i = 0; i < 60; i += 5) {
      const int a = at(i) - 5, op = at(i + 1), b = at(i + 2) - 5, c = at(i + 4) - 5;
      EXPECT_EQ(at(i + 3), 4);
      EXPECT_EQ((op == 1 ? a + b : op == 2 ? a - b + 11 : a * b) % 11, c);
    }
  }
  EXPECT_NEAR(*source->entropy_floor(), (2 * std::log(11) + std::log(3)) / 5, 1e-12);
}

TEST(Generated, QueriesRecallTheirValues) {
  const RowRules rules{.length = 40, .vocabulary = 33};
  const auto source = make_generated("recall", {.pairs = 6}, rules, 3);
  const Batch batch = rows_of(*source, rules, 50);
  for (int64_t row = 0; row < 50; ++row) {
    const int32_t* to = batch.targets.data() + row * 40;
    std::map<int32_t, int32_t> value;
    for (int i = 0; i < 12; i += 2) EXPECT_TRUE(value.emplace(to[i], to[i + 1]).second);
    for (int i = 12; i < 40; i += 2) EXPECT_EQ(value.at(to[i]), to[i + 1]);
  }
  double nats = 14 * std::log(6) + 6 * std::log(16);
  for (int i = 0; i < 6; ++i) nats += std::log(16 - i);
  EXPECT_NEAR(*source->entropy_floor(), nats / 40, 1e-12);
}

TEST(Generated, HopsFollowTheirPermutation) {
  constexpr int32_t kSymbols = 6, kMost = 4, kLength = 20;
  const RowRules rules{.length = kLength + 1, .vocabulary = 1 + kSymbols * (kSymbols + kMost + 1)};  // no room to spare
  const auto source = make_generated("hops", {.states = kSymbols, .hops = kMost}, rules, 3);
  const Batch batch = rows_of(*source, rules, 50);
  ASSERT_EQ(std::ssize(batch.targets), 50 * kLength);  // an odd token is left out
  std::map<int32_t, int> seen;
  for (int64_t row = 0; row < 50; ++row) {
    EXPECT_EQ(batch.ids[static_cast<size_t>(row * kLength)], 0);
    const int32_t* to = batch.targets.data() + row * kLength;
    std::map<int32_t, int32_t> next;
    for (int i = 0; i < kSymbols; ++i) EXPECT_TRUE(next.emplace((to[i] - 1) / kSymbols, (to[i] - 1) % kSymbols).second);
    for (int i = kSymbols; i < kLength; i += 2) {
      const int32_t question = to[i] - 1 - kSymbols * kSymbols, hops = question / kSymbols;
      int32_t at = question % kSymbols;
      for (int32_t n = 0; n <= hops; ++n) at = next.at(at);
      EXPECT_EQ(to[i + 1] - 1 - kSymbols * (kSymbols + kMost), at) << row << " " << i;
      ++seen[hops];
    }
  }
  EXPECT_EQ(seen.size(), static_cast<size_t>(kMost));
  EXPECT_EQ(seen.rbegin()->first, kMost - 1);
  const double nats = 2 * std::lgamma(kSymbols + 1) + 7 * std::log(kSymbols * kMost);
  EXPECT_NEAR(*source->entropy_floor(), nats / kLength, 1e-12);
}

// Sentences of four tokens over few symbols: the entropy of whole sentences can be estimated by counting.
TEST(Generated, AGrammarHasTheEntropyOfItsDerivations) {
  const RowRules rules{.length = 4, .vocabulary = 4};
  const auto source = make_generated("pcfg", {.states = 3, .depth = 2, .rules = 2}, rules, 5);
  const int64_t n = 200'000;
  const Batch batch = rows_of(*source, rules, n);
  std::map<std::vector<int32_t>, double> sentences;
  for (int64_t i = 0; i < n; ++i) {
    ++sentences[{batch.targets.begin() + 4 * i, batch.targets.begin() + 4 * i + 4}];
  }
  double nats = 0;
  for (const auto& [sentence, count] : sentences) {
    nats -= count / static_cast<double>(n) * std::log(count / static_cast<double>(n));
  }
  EXPECT_EQ(sentences.size(), 24u);  // 3 symbols, 2 rules for each of the three that become two
  EXPECT_NEAR(nats / 4, *source->entropy_floor(), 1e-3);
}

TEST(Generated, TooSmallVocabulariesAndRowsAreNamed) {
  const RowRules rules{.length = 16, .vocabulary = 20};
  const auto error = [&](const char* kind, const GeneratorSpec& spec) {
    return error_of([&] { make_generated(kind, spec, rules, 0); });
  };
  EXPECT_EQ(error("modular", {}),
            "[data.modulus] is out of range; got 97; expected 2 to 15; try a vocabulary of 102 or more");
  EXPECT_NE(error("markov", {.states = 21}).find("[data.states]"), std::string::npos);
  EXPECT_NE(error("markov", {.branch = 0}).find("[data.branch]"), std::string::npos);
  EXPECT_NE(error("pcfg", {.states = 3}).find("[data.rules]"), std::string::npos);
  EXPECT_EQ(error("pcfg", {.depth = 5}), "[length] a row is too short for a sentence; got 16; expected 32 or more");
  EXPECT_NE(error("recall", {.pairs = 9}).find("[data.pairs]"), std::string::npos);
  for (const char* kind : {"recall", "hops"}) {
    const auto of_three = [&] {
      make_generated(kind, {.states = 2, .pairs = 1, .hops = 1}, {.length = 3, .vocabulary = 20}, 0);
    };
    EXPECT_NE(error_of(of_three).find("[length] a row is too short"), std::string::npos) << error_of(of_three);
  }
  EXPECT_EQ(error("hops", {.states = 3, .hops = 3}),
            "[data.hops] is out of range; got 3; expected 1 to 2; try a larger vocabulary, or fewer states");
  EXPECT_NE(error("hops", {.states = 15}).find("[data.states]"), std::string::npos);
}

}  // namespace
}  // namespace braid::data
