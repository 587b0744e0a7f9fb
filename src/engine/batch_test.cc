#include "engine/batch.h"

#include <gtest/gtest.h>

#include "engine/generate.h"
#include "engine/language_model.h"

namespace braid::engine {
namespace {

TEST(Batch, AnswersAreThoseOfOneAtATime) {
  LanguageModel model(BRAID_TEST_DATA "/tiny-chat", {.context = 256, .slots = 3, .threads = 1});
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

TEST(Batch, StopsWhenAsked) {
  LanguageModel model(BRAID_TEST_DATA "/tiny-chat", {.context = 256, .slots = 2, .threads = 1});
  const std::vector<std::vector<int32_t>> prompts(9, model.tokenizer().encode("Hi", false));
  int64_t calls = 0;
  const auto all = generate_all(model.runner(), prompts, 4, [&](int64_t) { return ++calls < 2; });
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(all.back().empty());
  for (int64_t slot = 0; slot < 2; ++slot) EXPECT_LE(model.runner().length(slot), 256);
}

}  // namespace
}  // namespace braid::engine
