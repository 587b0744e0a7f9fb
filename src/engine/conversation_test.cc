#include "engine/conversation.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/data.h"
#include "support/error_of.h"

namespace braid::engine {
namespace {

using nlohmann::ordered_json;

// One thread: on a model this small more would only wait for each other.
LanguageModel tiny(RunnerOptions options = {}) {
  options.numerics = Numerics::serving(DType::f32, options.numerics.exact);
  options.threads = 1;
  return LanguageModel(support::data("tiny-chat"), options);
}

ordered_json user(const std::string& text) { return {{"role", "user"}, {"content", text}}; }
ordered_json only(const std::string& text) { return ordered_json::array({user(text)}); }

Answer ask(Conversation& conversation, const ordered_json& messages, bool think, int64_t tokens_max = 64) {
  const auto on_prompt = [](int64_t, int64_t) { return true; };
  const auto on_text = [](const ReasoningSplitter::Parts&) { return true; };
  return conversation.answer(messages, {.generate = {.tokens_max = tokens_max}, .think = think}, {on_prompt, on_text});
}

// The next token's logits after everything that the slot has read and `id`.
std::vector<float> logits_after(LanguageModel& model, int64_t slot, int32_t id) {
  const Tensor logits = model.runner().step(slot, id);
  const auto* values = logits.view().as<float>();
  return {values, values + logits.dim(1)};
}

TEST(Conversation, GoldenPromptsIdsAndAnswers) {
  LanguageModel model = tiny();
  Conversation conversation(model);
  std::ifstream file(support::data("tiny-chat/golden.json"));
  const ordered_json golden = ordered_json::parse(file);
  ASSERT_EQ(golden.size(), 22U);
  for (const ordered_json& c : golden) {
    SCOPED_TRACE(c["prompt"].get<std::string>());
    const bool think = c["enable_thinking"];
    EXPECT_EQ(model.render(c["messages"], {.think = think}), c["prompt"]);
    const Answer a = ask(conversation, c["messages"], think);
    EXPECT_EQ(ordered_json(a.prompt_ids), c["prompt_ids"]);
    EXPECT_EQ(ordered_json(a.generated.ids), c["ids"]);
    EXPECT_EQ(a.generated.finish, Finish::stop);
    EXPECT_EQ((think ? a.reasoning + "</think>\n" : a.reasoning) + a.content + "<|im_end|>", c["text"]);
  }
}

// Without thinking every turn only adds to the last one. --exact makes the state independent of how it was reached.
TEST(Conversation, LaterTurnsReadOnlyWhatIsNew) {
  LanguageModel model = tiny({.numerics = Numerics::serving(DType::f32, true), .sequences = 2});
  Conversation kept(model, 0);
  ordered_json messages = ordered_json::array();
  for (const char* text : {"Hello!", "Which is larger, 31 or 13?", "What is 93 - 47?", "Thanks!"}) {
    SCOPED_TRACE(text);
    const auto before = std::ssize(kept.read());
    messages.push_back(user(text));
    const Answer turn = ask(kept, messages, false);
    EXPECT_EQ(turn.cached_tokens, before);
    EXPECT_EQ(turn.generated.timings.prompt_tokens, static_cast<int64_t>(turn.prompt_ids.size()) - before);
    Conversation fresh(model, 1);
    model.runner().reset(1);
    const Answer whole = ask(fresh, messages, false);
    EXPECT_EQ(whole.cached_tokens, 0);
    EXPECT_EQ(turn.generated.ids, whole.generated.ids);
    messages.push_back(turn.message());
  }
  model.runner().reset(1);
  model.runner().prefill(1, kept.read(), [](const Tensor&) {});
  const std::vector<float> a = logits_after(model, 0, 11), b = logits_after(model, 1, 11);
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
}

// At a very high temperature every token is as likely as any other, so that an answer shows its random numbers.
TEST(Conversation, LaterAnswersDrawOtherNumbers) {
  LanguageModel model = tiny();
  const auto on_prompt = [](int64_t, int64_t) { return true; };
  const auto on_text = [](const ReasoningSplitter::Parts&) { return true; };
  const AnswerOptions options{
      .generate = {.tokens_max = 12, .sampling = {.temperature = 1e9, .seed = 5}, .ignore_eos = true}, .think = true};
  const auto converse = [&] {
    Conversation conversation(model);
    model.runner().reset(0);
    ordered_json messages = only("Hello!");
    std::vector<std::vector<int32_t>> ids;
    for (int turn = 0; turn < 3; ++turn) {
      const Answer a = conversation.answer(messages, options, {on_prompt, on_text});
      EXPECT_EQ(a.generated.ids.size(), 12U);
      ids.push_back(a.generated.ids);
      // As a template that drops the thinking of earlier turns: the next prompt is no longer than this one.
      if (turn == 0) messages.push_back(a.message()), messages.push_back(user("Again."));
    }
    return ids;
  };
  const auto ids = converse();
  EXPECT_EQ(ids, converse());  // the same conversation gives the same answers
  for (size_t a = 0; a < ids.size(); ++a) {
    for (size_t b = a + 1; b < ids.size(); ++b) {
      for (size_t shift = 0; shift < 9; ++shift) {
        const std::vector<int32_t> tail(ids[a].begin() + static_cast<int64_t>(shift), ids[a].end());
        const std::vector<int32_t> head(ids[b].begin(), ids[b].end() - static_cast<int64_t>(shift));
        EXPECT_NE(tail, head) << "answer " << b << " repeats answer " << a << " from token " << shift;
      }
    }
  }
}

// The template drops the thinking of earlier turns: only the last answer and the new message are read. --exact makes
// the state independent of how it was reached, so answers are those of a conversation that reads everything.
TEST(Conversation, DroppedThinkingContinuesFromTheMark) {
  LanguageModel model = tiny({.numerics = Numerics::serving(DType::f32, true), .sequences = 2, .spare_slots = 1});
  Conversation marked(model, 0);
  ordered_json messages = ordered_json::array();
  int64_t before_answer = 0;
  for (const char* text : {"What is 5 + 6?", "Add 88 and 77.", "What is 93 - 47?"}) {
    SCOPED_TRACE(text);
    messages.push_back(user(text));
    const Answer turn = ask(marked, messages, true);
    EXPECT_FALSE(turn.reasoning.empty());
    EXPECT_EQ(turn.cached_tokens, before_answer);
    before_answer =
        std::ssize(model.tokenizer().encode(model.render(messages, {.think = true, .answer_next = false}), false));
    Conversation fresh(model, 1);
    model.runner().reset(1);
    const Answer whole = ask(fresh, messages, true);
    EXPECT_EQ(whole.cached_tokens, 0);
    EXPECT_EQ(turn.generated.ids, whole.generated.ids);
    messages.push_back(turn.message());
    EXPECT_EQ(messages.back()["reasoning_content"], turn.reasoning);
  }
  messages[0] = user("What is 17 + 25?");
  messages.push_back(user("Thanks!"));
  EXPECT_EQ(ask(marked, messages, true).cached_tokens, 0);  // an earlier message changed
}

TEST(Conversation, WithoutASpareSlotDroppedThinkingBeginsAnew) {
  LanguageModel model = tiny();
  Conversation conversation(model);
  ordered_json messages = only("What is 5 + 6?");
  messages.push_back(ask(conversation, messages, true).message());
  messages.push_back(user("Add 88 and 77."));
  const Answer second = ask(conversation, messages, true);
  EXPECT_EQ(second.cached_tokens, 0);
  EXPECT_EQ(second.content, "165");
}

TEST(Conversation, StopsInTheAnswerAndInThePrompt) {
  LanguageModel model = tiny({.chunk = 8});
  Conversation conversation(model);
  ordered_json messages = only("Who are you?");
  const auto patient = [](int64_t, int64_t) { return true; };
  int pieces = 0;
  const auto three = [&](const ReasoningSplitter::Parts&) { return ++pieces < 3; };
  const Answer cut = conversation.answer(messages, {.think = false}, {patient, three});
  EXPECT_EQ(cut.generated.finish, Finish::cancelled);
  EXPECT_EQ(cut.generated.ids.size(), 3U);
  EXPECT_EQ(conversation.read().size(), cut.prompt_ids.size() + 2);
  messages.push_back(cut.message());
  messages.push_back(user("What is 93 - 47?"));

  std::vector<int64_t> seen;
  const auto once = [&](int64_t read, int64_t total) {
    EXPECT_GE(total, read);
    seen.push_back(read);
    return seen.size() < 2;
  };
  const auto silent = [](const ReasoningSplitter::Parts&) -> bool { throw std::logic_error("no text was due"); };
  const Answer none = conversation.answer(messages, {.think = false}, {once, silent});
  EXPECT_EQ(none.generated.finish, Finish::cancelled);
  EXPECT_EQ(seen, (std::vector<int64_t>{0, 8}));
  EXPECT_EQ(static_cast<int64_t>(conversation.read().size()), model.runner().length(0));

  LanguageModel other = tiny();
  Conversation fresh(other);
  EXPECT_EQ(ask(conversation, messages, false).generated.ids, ask(fresh, messages, false).generated.ids);
}

TEST(Conversation, AFullContextIsAnErrorOrTheEnd) {
  LanguageModel model = tiny({.context = 40});
  Conversation conversation(model);
  ordered_json messages = only("Who are you?");
  const Answer first = ask(conversation, messages, true, -1);
  EXPECT_EQ(first.generated.finish, Finish::length);
  EXPECT_EQ(model.runner().length(0), 40);
  messages.push_back(first.message());
  messages.push_back(user("one two three four five six seven eight nine ten eleven twelve"));
  EXPECT_NE(support::error_of([&] { ask(conversation, messages, true); }).find("the conversation is too long"),
            std::string::npos);
  EXPECT_EQ(ask(conversation, only("What is 93 - 47?"), false).content, "46");
}

}  // namespace
}  // namespace braid::engine
