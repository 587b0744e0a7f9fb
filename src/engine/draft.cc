#include "engine/draft.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace braid::engine {
namespace {

// Kinds of guesses: of n-grams by the length of the match, which is one longer for every guess that was right.
constexpr size_t kMatches = 8, kOutside = 8;
constexpr double kExpectedOfMatch[] = {0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9}, kExpectedOutside = 0.5;

size_t kind_of_match(int64_t tokens) {
  if (tokens < 6) return static_cast<size_t>(std::max<int64_t>(tokens, 2) - 2);  // 2, 3, 4, 5
  return static_cast<size_t>(std::min<int64_t>(std::bit_width(static_cast<uint64_t>(tokens + 2)), 7));
}

double expected_rate(size_t kind) { return kind < kMatches ? kExpectedOfMatch[kind] : kExpectedOutside; }

}  // namespace

Offer Drafter::offer(const Wanted& wanted) {
  AnswerDrafts& a = *wanted.answer;
  a.guess.clear();
  a.kinds.clear();
  const int64_t most = std::min(options_.tokens_max, wanted.tokens_max);
  if (options_.source) {
    if (most > 0) a.guess = options_.source(wanted.text, most);
    a.kinds.assign(a.guess.size(), kOutside);
  } else {
    const NgramIndex::Match match = a.index.find(wanted.text);
    a.guess = NgramIndex::continuation(wanted.text, match, most);
    for (int64_t i = 0; i < std::ssize(a.guess); ++i) a.kinds.push_back(kind_of_match(match.tokens + i));
  }
  Offer out;
  double all = 1;
  constexpr double kWeight = 4;
  for (const size_t kind : a.kinds)
    out.odds.push_back(all *= a.rates[kind].value(rates_[kind].value(expected_rate(kind), kWeight), kWeight));
  return out;
}

void Drafter::draft(std::span<const Wanted> answers, int64_t slots) {
  std::vector<Offer> offers;
  for (const Wanted& wanted : answers) offers.push_back(offer(wanted));
  const auto depths = chooser_.choose(offers, std::ssize(answers), slots, options_.always);
  for (size_t i = 0; i < answers.size(); ++i) {
    AnswerDrafts& a = *answers[i].answer;
    a.tokens.assign(a.guess.begin(), a.guess.begin() + depths[i]);
  }
}

void Drafter::drawn(AnswerDrafts& a, std::span<const int32_t> tokens) {
  a.drafted += std::ssize(a.tokens);
  a.accepted += std::ssize(tokens) - 1;
  for (size_t i = 0; i < std::min(tokens.size(), a.guess.size()); ++i) {
    const bool hit = a.guess[i] == tokens[i];
    a.rates[a.kinds[i]].note(hit);
    rates_[a.kinds[i]].note(hit);
    if (!hit) break;
  }
  a.tokens.clear();
  a.guess.clear();
}

}  // namespace braid::engine
