// The tree of cached prefixes against plain lists, its pages against sequences read whole, and its memory against the
// budget. Turns of conversations are in prefix_turns_test.cc.
#include "engine/prefix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "core/philox.h"
#include "core/ref.h"
#include "engine/language_model.h"
#include "support/data.h"

namespace braid::engine {
namespace {

using Tokens = std::vector<int32_t>;

LanguageModel small(int64_t sequences, int64_t memory, int64_t context = 256) {
  Numerics numerics = Numerics::serving(DType::f32);
  numerics.exact = true;
  return {
      support::data("tiny-chat"),
      {.numerics = numerics, .context = context, .sequences = sequences, .memory = memory, .chunk = 64, .threads = 1}};
}

int64_t common(const Tokens& a, const Tokens& b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

// What the tree should hold: every prefix that was kept, the least recently used first.
struct List {
  std::vector<Tokens> kept{};
  void use(const Tokens& tokens) {
    std::erase(kept, tokens);
    kept.push_back(tokens);
  }
  // The tree has evicted the oldest.
  void shrink(int64_t size) {
    ASSERT_GE(std::ssize(kept), size);
    kept.erase(kept.begin(), kept.end() - static_cast<std::ptrdiff_t>(size));
  }
  const Tokens* longest(const Tokens& prompt) const {
    const Tokens* best = nullptr;
    for (const Tokens& t : kept) {
      if (t.size() < prompt.size() && common(t, prompt) == std::ssize(t) && (!best || t.size() > best->size()))
        best = &t;
    }
    return best;
  }
  int64_t most_in_common(const Tokens& prompt) const {
    int64_t most = 0;
    for (const Tokens& t : kept) most = std::max(most, common(t, prompt));
    return most;
  }
};

void read(Runner& runner, int64_t sequence, std::span<const int32_t> tokens) {
  if (!tokens.empty()) runner.prefill(sequence, tokens, [](const Tensor&) {});
}

std::vector<double> next_logits(Runner& runner, int64_t sequence) {
  return to_doubles(runner.step(sequence, 7).view());
}

// Random sequences over two tokens, so that they share prefixes of all lengths, under a budget that holds a few of
// them. The longest match is that of the list; a sequence that continues from the tree has the bits of one that is read
// whole; the budget is never exceeded; and without the tree every page is free.
TEST(PrefixCache, RandomSequencesAgainstAPlainList) {
  constexpr int64_t kContext = 200;
  LanguageModel plain = small(1, 0, kContext), probe = small(1, 64 << 20, kContext);
  const int64_t one = probe.runner().sequence_bytes_of(kContext);
  LanguageModel model = small(2, 12 * one, kContext);
  Runner& runner = model.runner();
  StatePool& pool = runner.pool();
  std::map<std::string, int> seen;
  {
    PrefixCache cache(runner);
    List list;
    for (uint64_t round = 0; round < 150; ++round) {
      const auto draw = philox({.seed = 3}, round);
      const auto sequence = static_cast<int64_t>(draw[0] % 2);
      Tokens prompt;
      if (!list.kept.empty() && draw[1] % 4 > 0) {  // one that leaves a known one somewhere
        const Tokens& other = list.kept[draw[2] % list.kept.size()];
        const size_t left = draw[1] % 4 == 1 ? draw[3] % other.size() : other.size() - draw[1] % 2;
        prompt.assign(other.begin(), other.begin() + static_cast<std::ptrdiff_t>(left));
      }
      const size_t more = 1 + draw[3] % 40;
      for (size_t i = 0; i < more && prompt.size() < kContext - 2; ++i)
        prompt.push_back(40 + static_cast<int32_t>(philox({.seed = 4}, round, static_cast<uint32_t>(i))[0] % 2));
      const PrefixCache::Found found = cache.resume(prompt, sequence);
      list.shrink(cache.snapshots());
      const Tokens* want = list.longest(prompt);
      ASSERT_EQ(found.tokens, want ? std::ssize(*want) : 0) << round;
      ASSERT_EQ(found.common, list.most_in_common(prompt)) << round;
      ++seen[found.tokens > 64 ? "long" : found.tokens > 0 ? "short" : "none"];
      if (want) list.use(Tokens(*want));
      read(runner, sequence, std::span(prompt).subspan(static_cast<size_t>(found.tokens)));
      list.shrink(cache.snapshots());
      const int64_t before = cache.snapshots();
      cache.keep(prompt, sequence);
      list.use(prompt);
      if (cache.snapshots() <= before) ++seen["evicted"];
      list.shrink(cache.snapshots());
      cache.check();
      ASSERT_LE(pool.bytes_in_use(), runner.options().memory) << round;
      ASSERT_LE(pool.bytes_resident(), runner.options().memory) << round;
      ASSERT_EQ(pool.references(), cache.page_references() + std::ssize(pool.pages(0)) + std::ssize(pool.pages(1)));
      if (round % 5 > 0) continue;
      plain.runner().reset(0);
      read(plain.runner(), 0, prompt);
      ASSERT_EQ(next_logits(runner, sequence), next_logits(plain.runner(), 0)) << round;
    }
  }
  for (const int64_t sequence : {0, 1}) runner.reset(sequence);
  EXPECT_EQ(pool.pages_in_use(), 0);
  EXPECT_EQ(pool.slots_in_use(), 0);
  EXPECT_EQ(pool.bytes_in_use(), 0);
  for (const char* what : {"long", "short", "none", "evicted"}) EXPECT_GT(seen[what], 10) << what;
}

// Without a recurrent state a prompt continues at any position, and the whole of it where its last row was stored.
TEST(PrefixCache, AModelOfAttentionAloneContinuesAnywhere) {
  Numerics numerics = Numerics::serving(DType::f32);
  numerics.exact = true;
  LanguageModel model(support::data("hf/nemotron-nas"),
                      {.numerics = numerics, .context = 128, .sequences = 2, .memory = 16 << 20, .threads = 1});
  Runner& runner = model.runner();
  ASSERT_EQ(runner.pool().slot_bytes(), 0);
  PrefixCache cache(runner);
  Tokens first(100, 5);
  for (size_t i = 0; i < first.size(); ++i) first[i] = static_cast<int32_t>(5 + i % 7);
  read(runner, 0, first);
  cache.keep(first, 0, std::vector<float>(static_cast<size_t>(runner.config().hidden), 1.0f));
  for (const size_t left : {size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{99}}) {
    Tokens prompt(first.begin(), first.begin() + static_cast<std::ptrdiff_t>(left));
    prompt.push_back(30);
    EXPECT_EQ(cache.resume(prompt, 1).tokens, std::ssize(prompt) - 1);
    read(runner, 1, Tokens{30});
    cache.keep(prompt, 1);
    cache.check();
    const auto found = next_logits(runner, 1);
    runner.reset(1);
    read(runner, 1, prompt);
    EXPECT_EQ(found, next_logits(runner, 1)) << left;
    prompt.pop_back();
    EXPECT_EQ(cache.resume(prompt, 1).tokens, std::ssize(prompt) - 1);  // one is left to read
  }
  EXPECT_EQ(cache.resume(first, 1).tokens, 100);
  while (cache.evict()) cache.check();
  for (const int64_t sequence : {0, 1}) runner.reset(sequence);
  EXPECT_EQ(runner.pool().bytes_in_use(), 0);
}

TEST(PrefixCache, WhatWasUsedLeastRecentlyMakesRoom) {
  LanguageModel probe = small(1, 64 << 20);
  const int64_t one = probe.runner().sequence_bytes_of(64);
  LanguageModel model = small(2, 4 * one + one / 2);  // for both sequences and two prefixes
  Runner& runner = model.runner();
  PrefixCache cache(runner);
  const auto keep = [&](const Tokens& ids) {
    runner.reset(0);
    read(runner, 0, ids);
    cache.keep(ids, 0);
  };
  keep({41, 42, 43});
  keep({51, 52, 53});
  EXPECT_EQ(cache.snapshots(), 2);
  EXPECT_EQ(cache.resume(Tokens{41, 42, 43, 44}, 1).tokens, 3);  // used: the other is the older one now
  keep({61, 62});
  EXPECT_EQ(cache.snapshots(), 2);
  EXPECT_EQ(cache.resume(Tokens{51, 52, 53, 54}, 0).tokens, 0);
  EXPECT_EQ(runner.length(0), 0);
  EXPECT_EQ(cache.resume(Tokens{41, 42, 43}, 0).tokens, 0);  // the row of its last token was not stored
  keep({71, 72});
  keep({81, 82});
  EXPECT_EQ(cache.resume(Tokens{41, 42, 43, 44}, 0).tokens, 0);  // gone, but not for sequence 1
  const std::vector<double> found = next_logits(runner, 1);
  runner.reset(0);
  read(runner, 0, Tokens{41, 42, 43});
  EXPECT_EQ(found, next_logits(runner, 0));
}

}  // namespace
}  // namespace braid::engine
