#include "engine/batch.h"

#include <gtest/gtest.h>

#include "engine/generate.h"
#include "engine/language_model.h"
#include "support/data.h"

namespace braid::engine {
namespace {

TEST(Batch, AnswersAreThoseOfOneAtATime) {
  LanguageModel model(support::data("tiny-chat"), {.context = 256, .sequences = 3, .threads = 1});
  std::vector<std::vector<int32_t>> prompts;
  for (const char* text : {"What is 17 + 25?", "Hi", "Reverse the word stone.", "9", "Who are you?", "What is 3 - 1?"})
    prompts.push_back(model.tokenizer().encode(text, false));
  prompts.emplace_back();                               // nothing to answer
  prompts.emplace_back(std::vector<int32_t>(256, 40));  // no room for an answer
  prompts.emplace_back(std::vector<int32_t>(255, 40));  // room for one token and the next
  const auto all = generate_all(model.runner(), prompts, 40, [](int64_t) { return true; });
  ASSERT_EQ(all.size(), prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].empty() || prompts[i].size() == 256) {
      EXPECT_TRUE(all[i].empty());
      continue;
    }
    model.runner().reset(1);
    Generated one = generate(
        model.runner(), 1, {}, prompts[i], {.tokens_max = 40}, [](int32_t) { return true; }, [](const Tensor&) {});
    if (one.finish == Finish::stop) one.ids.pop_back();
    EXPECT_EQ(all[i], one.ids) << i;
  }
}

// Prompts of several pieces are read while others step; a piece is never cut to make room for others.
TEST(Batch, LongPromptsAlongsideSteps) {
  LanguageModel model(support::data("tiny-chat"), {.context = 256, .sequences = 4, .chunk = 16, .threads = 1});
  std::vector<std::vector<int32_t>> prompts;
  for (const int64_t length : {3, 40, 16, 100, 17, 1, 33}) {
    auto& prompt = prompts.emplace_back();
    for (int64_t i = 0; i < length; ++i) prompt.push_back(static_cast<int32_t>(40 + (7 * i + length) % 50));
  }
  const auto all = generate_all(model.runner(), prompts, 12, [](int64_t) { return true; });
  for (size_t i = 0; i < prompts.size(); ++i) {
    model.runner().reset(2);
    Generated one = generate(
        model.runner(), 2, {}, prompts[i], {.tokens_max = 12}, [](int32_t) { return true; }, [](const Tensor&) {});
    if (one.finish == Finish::stop) one.ids.pop_back();
    EXPECT_EQ(all[i], one.ids) << i;
  }
}

// Cut short, the thinking ends in its tag, and the answer is that of a generation with the same limit.
TEST(Batch, LimitsOfThinkingAreThoseOfOneAtATime) {
  LanguageModel model(support::data("tiny-chat"), {.context = 256, .sequences = 2, .threads = 1});
  const ReasoningBudget budget = model.reasoning_budget(5);
  std::vector<std::vector<int32_t>> prompts;
  for (const char* text : {"<think>\n17 + 25", "<think>\nHi", "<think>\nReverse the word stone."})
    prompts.push_back(model.tokenizer().encode(text, false));
  const std::vector<ReasoningLimit> limits = {ReasoningLimit(budget), ReasoningLimit(), ReasoningLimit(budget)};
  const auto all = generate_all(
      model.runner(), prompts, 20, [](int64_t) { return true; }, limits);
  for (size_t i = 0; i < prompts.size(); ++i) {
    model.runner().reset(1);
    Generated one = generate(
        model.runner(), 1, {}, prompts[i], {.tokens_max = 20, .budget = i == 1 ? ReasoningBudget() : budget},
        [](int32_t) { return true; }, [](const Tensor&) {});
    if (one.finish == Finish::stop) one.ids.pop_back();
    EXPECT_EQ(all[i], one.ids) << i;
    if (i != 1 && std::ssize(all[i]) > 5 + std::ssize(budget.closing)) {
      const auto end = std::find(all[i].begin(), all[i].end(), budget.end);
      EXPECT_LE(end - all[i].begin(), 5 + std::ssize(budget.closing)) << i;
    }
  }
}

TEST(Batch, StopsWhenAsked) {
  LanguageModel model(support::data("tiny-chat"), {.context = 256, .sequences = 2, .threads = 1});
  const std::vector<std::vector<int32_t>> prompts(9, model.tokenizer().encode("Hi", false));
  int64_t calls = 0;
  const auto all = generate_all(model.runner(), prompts, 4, [&](int64_t) { return ++calls < 2; });
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(all.back().empty());
  for (int64_t s = 0; s < 2; ++s) EXPECT_LE(model.runner().length(s), 256);
}

}  // namespace
}  // namespace braid::engine
