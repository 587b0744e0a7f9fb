// The cache of constraints: what it may take, what it keeps, and that it counts what constraints really take.
#include "grammar/grammars.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "grammar/grammar_fixture.h"

namespace braid::grammar {
namespace {

constexpr int64_t kMax = 1 << 20;

std::shared_ptr<const Constraint> get(Grammars& grammars, int number) {
  const std::string name = "field " + std::to_string(number);
  const nlohmann::ordered_json schema = {
      {"type", "object"},
      {"properties", {{name, {{"type", "array"}, {"items", {{"type", "string"}, {"maxLength", 40}}}}}}},
      {"required", {name}}};
  return grammars.get(schema.dump(), "test", [&](Builder& b) { return json_schema(b, schema, "test"); });
}

// An answer of so many tokens: the one with the highest number of those allowed, over and over.
void answer(Matcher& matcher, const TokenTrie& trie, int tokens) {
  for (int i = 0; i < tokens; ++i) {
    std::vector<float> logits(static_cast<size_t>(trie.size()), 0);
    matcher.mask(logits, -1);
    auto id = static_cast<int32_t>(trie.size() - 1);
    while (id >= 0 && (!std::isfinite(logits[static_cast<size_t>(id)]) || trie.bytes(id).empty())) --id;
    if (id < 0 || !matcher.accept(trie.bytes(id))) return;
  }
}

TEST(Grammars, ManySchemasStayWithinTheLimit) {
  Grammars grammars(test_trie, kMax);
  std::optional<Matcher> running(get(grammars, 0));
  const std::weak_ptr<const Constraint> of_running = get(grammars, 0);
  std::vector<std::weak_ptr<const Constraint>> all;
  int64_t ever = 0;
  for (int number = 1; number < 60; ++number) {
    {
      const auto constraint = get(grammars, number);
      Matcher matcher(constraint);
      answer(matcher, constraint->trie(), 60);
      all.push_back(constraint);
      ever += constraint->bytes();
    }
    EXPECT_LE(grammars.trim(), kMax);
    int64_t alive = 0;
    for (const auto& one : all) {
      if (const auto constraint = one.lock()) alive += constraint->bytes();
    }
    ASSERT_LE(alive, kMax) << number;
    ASSERT_FALSE(all.back().expired()) << "the last used of those that fit";
    ASSERT_EQ(get(grammars, 0), of_running.lock()) << "an answer holds it";
  }
  EXPECT_GT(ever, 3 * kMax);
  EXPECT_TRUE(all.front().expired());
}

// While answers hold more than the limit all of it is counted; when they end it goes, the least recently used first.
TEST(Grammars, WhatAnswersHoldStaysAndCounts) {
  Grammars grammars(test_trie, kMax);
  std::vector<Matcher> running;
  std::vector<std::weak_ptr<const Constraint>> all;
  int64_t held = 0;
  for (int number = 0; held <= 2 * kMax; ++number) {
    ASSERT_LT(number, 100);
    const auto constraint = get(grammars, number);
    answer(running.emplace_back(constraint), constraint->trie(), 60);
    all.push_back(constraint);
    held += constraint->bytes();
  }
  EXPECT_GE(grammars.trim(), held);
  (void)get(grammars, 0);
  running.clear();
  EXPECT_LE(grammars.trim(), kMax);
  EXPECT_FALSE(all.front().expired());
  EXPECT_FALSE(all.back().expired());
  EXPECT_TRUE(all[1].expired());
}

// Each may take tens of MB while it is compiled.
TEST(Grammars, FewAreCompiledAtATime) {
  Grammars grammars(test_trie);
  std::atomic<int> now = 0, most = 0, made = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 12; ++i) {
    threads.emplace_back([&, i] {
      (void)grammars.get(std::to_string(i % 6), "test", [&](Builder& b) {
        const int here = ++now;
        for (int seen = most; here > seen && !most.compare_exchange_weak(seen, here);) {
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        ++made;
        --now;
        return b.rule(b.literal("a", b.done()));
      });
    });
  }
  threads.clear();
  EXPECT_LE(most, 2);
  EXPECT_GE(made, 6);
}

// Against what the allocator says, where it is that of glibc.
TEST(Grammars, BytesAreThoseAllocated) {
  const auto allocated = [] {
    const struct mallinfo2 info = mallinfo2();
    return static_cast<int64_t>(info.uordblks + info.hblkhd);
  };
  {
    const int64_t before = allocated();
    const auto block = std::make_unique<std::vector<char>>(1 << 20);
    if (allocated() - before < std::ssize(*block)) GTEST_SKIP() << "another allocator";
  }
  Grammars grammars(test_trie);
  (void)get(grammars, 0);  // with what is allocated once
  const int64_t before = allocated(), known = grammars.trim();
  for (int number = 1; number <= 8; ++number) {
    const auto constraint = get(grammars, number);
    Matcher matcher(constraint);
    answer(matcher, constraint->trie(), 200);
  }
  const int64_t counted = grammars.trim() - known, real = allocated() - before;
  EXPECT_GT(counted, 1 << 18);
  EXPECT_GT(counted, real * 7 / 10) << real;
  EXPECT_LT(counted, real * 13 / 10) << real;
}

}  // namespace
}  // namespace braid::grammar
