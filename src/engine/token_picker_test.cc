#include "engine/token_picker.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

namespace braid::engine {
namespace {

TEST(TokenPicker, NoEndTokenComesTooEarly) {
  const std::vector<int64_t> eos = {3, -1, int64_t{1} << 32};
  const std::vector<float> logits = {0, 1, 2, 4, 3};
  GenerateOptions options{.tokens_max = 8};
  options.stop_ids = {4, 9};
  options.tokens_min = 2;
  TokenPicker picker(options, {0}, eos);
  EXPECT_EQ(picker.next(logits), 2);
  EXPECT_EQ(picker.next(logits), 2);
  EXPECT_FALSE(picker.ended());
  EXPECT_EQ(picker.next(logits), 3);
  EXPECT_TRUE(picker.ended());
}

TEST(TokenPicker, AnEndTokenComesEarlyWhereThereIsNoOther) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  const std::vector<int64_t> eos = {0};
  GenerateOptions options{.tokens_max = 8};
  options.stop_ids = {2};
  options.tokens_min = 2;
  TokenPicker picker(options, {0}, eos);
  EXPECT_EQ(picker.next(std::vector<float>{1, kNone, 2}), 2);
}

// 5 is <think>, 6 </think>, 3 the end: a model that wants the end, then a tag, says what it wants third.
TEST(TokenPicker, NoTagOfThinkingStandsInForAnEndTokenThatComesTooEarly) {
  const std::vector<int64_t> eos = {3};
  const auto said = [&](Thinking thinking, std::vector<float> logits) {
    const GenerateOptions options{
        .tokens_max = 8, .tokens_min = 3, .think_begin = 5, .think_end = 6, .thinking = thinking};
    TokenPicker picker(options, {0}, eos);
    std::vector<int32_t> ids;
    for (int i = 0; i < 4; ++i) ids.push_back(picker.next(logits));
    return ids;
  };
  const std::vector<float> closes = {0, 1, 2, 9, 0, 4, 5}, opens = {0, 1, 2, 9, 0, 5, 4};
  EXPECT_EQ(said(Thinking::open, closes), (std::vector<int32_t>{6, 2, 2, 3}));
  EXPECT_EQ(said(Thinking::none, closes), (std::vector<int32_t>{2, 2, 2, 3}));
  EXPECT_EQ(said(Thinking::may_open, closes), (std::vector<int32_t>{5, 6, 2, 3}));
  EXPECT_EQ(said(Thinking::none, opens), (std::vector<int32_t>{2, 2, 2, 3}));
}

// A search of the stop tokens for every token of the vocabulary would take a minute.
TEST(TokenPicker, ManyStopTokensCostNoMoreThanTheirNumber) {
  constexpr int32_t kVocab = 1 << 17;
  const std::vector<float> logits(kVocab);
  GenerateOptions options{.tokens_max = 64};
  options.stop_ids.resize(kVocab / 2);
  std::iota(options.stop_ids.begin(), options.stop_ids.end(), 0);
  options.tokens_min = 32;
  TokenPicker picker(options, {0}, {});
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 32; ++i) ASSERT_EQ(picker.next(logits), kVocab / 2);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

}  // namespace
}  // namespace braid::engine
