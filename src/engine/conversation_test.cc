#include "engine/conversation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/data.h"
#include "support/error_of.h"
#include "support/folder.h"

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

RunnerOptions with_cache(RunnerOptions options = {}) {
  options.memory = kMemoryOfContexts;
  return options;
}

// A model that nobody else asks.
struct Chat {
  explicit Chat(const RunnerOptions& options = with_cache()) : model(tiny(options)) {}

  LanguageModel model;
  Scheduler scheduler{model.runner()};
  Conversation conversation{model, scheduler};
};

// What is known of a conversation after this turn: the last token was sampled but not read.
int64_t tokens_read(const Answer& a) { return std::ssize(a.prompt_ids) + std::ssize(a.generated.ids) - 1; }

TEST(Conversation, GoldenPromptsIdsAndAnswers) {
  Chat chat;
  std::ifstream file(support::data("tiny-chat/golden.json"));
  const ordered_json golden = ordered_json::parse(file);
  ASSERT_EQ(golden.size(), 22U);
  for (const ordered_json& c : golden) {
    SCOPED_TRACE(c["prompt"].get<std::string>());
    const bool think = c["enable_thinking"];
    EXPECT_EQ(chat.model.render(c["messages"], {.think = think}), c["prompt"]);
    const Answer a = ask(chat.conversation, c["messages"], think);
    EXPECT_EQ(ordered_json(a.prompt_ids), c["prompt_ids"]);
    EXPECT_EQ(ordered_json(a.generated.ids), c["ids"]);
    EXPECT_EQ(a.generated.finish, Finish::stop);
    EXPECT_EQ((think ? a.reasoning + "</think>\n" : a.reasoning) + a.content + "<|im_end|>", c["text"]);
  }
}

// Where an answer of tiny-chat begins, with another template.
Thinking thinking_without_asking(const std::string& source, std::optional<bool> think) {
  const support::Folder folder;
  std::filesystem::copy(support::data("tiny-chat"), folder.path(), std::filesystem::copy_options::recursive);
  folder.write("chat_template.jinja", source);
  LanguageModel model(folder.path().string(), {.numerics = Numerics::serving(DType::f32, false), .threads = 1});
  const std::string prompt = model.render(only("Hello!"), {.think = think});
  return model.thinking_after(prompt, think);
}

// Turning it off tells a model nothing without a switch, as with older distills of R1: it opens <think> itself.
TEST(Conversation, WithoutASwitchAModelMayThinkThoughItIsOff) {
  const std::string plain = "{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}answer:";
  for (const std::optional<bool> think : {std::optional<bool>(), std::optional(false)})
    EXPECT_EQ(thinking_without_asking(plain, think), Thinking::may_open);
  EXPECT_EQ(thinking_without_asking("{% for m in messages %}{{ m.content }}{% endfor %}", false), Thinking::none);
  EXPECT_EQ(thinking_without_asking(plain + "{{ '' if enable_thinking else '' }}", false), Thinking::none);
  EXPECT_EQ(thinking_without_asking(plain + "{{ '' if enable_thinking else '' }}", true), Thinking::may_open);
  EXPECT_NE(support::error_of([&] { thinking_without_asking(plain, true); }).find("has no switch for thinking"),
            std::string::npos);
}

// Without thinking every turn only adds to the last one. --exact makes the state independent of how it was reached.
TEST(Conversation, LaterTurnsReadOnlyWhatIsNew) {
  const RunnerOptions options = with_cache({.numerics = Numerics::serving(DType::f32, true)});
  Chat kept(options);
  const auto on_prompt = [](int64_t, int64_t) { return true; };
  const auto on_text = [](const ReasoningSplitter::Parts&) { return true; };
  const AnswerOptions answer{.generate = {.tokens_max = 64, .logprobs = 3}, .think = false};
  ordered_json messages = ordered_json::array();
  int64_t before = 0;
  for (const char* text : {"Hello!", "Which is larger, 31 or 13?", "What is 93 - 47?", "Thanks!"}) {
    SCOPED_TRACE(text);
    messages.push_back(user(text));
    const Answer turn = kept.conversation.answer(messages, answer, {on_prompt, on_text});
    EXPECT_EQ(turn.cached_tokens, before);
    EXPECT_EQ(turn.generated.timings.prompt_tokens, std::ssize(turn.prompt_ids) - before);
    Chat fresh(options);
    const Answer whole = fresh.conversation.answer(messages, answer, {on_prompt, on_text});
    EXPECT_EQ(whole.cached_tokens, 0);
    EXPECT_EQ(turn.generated.ids, whole.generated.ids);
    ASSERT_EQ(turn.generated.logprobs.size(), whole.generated.logprobs.size());
    for (size_t i = 0; i < turn.generated.logprobs.size(); ++i) {
      for (size_t k = 0; k < turn.generated.logprobs[i].size(); ++k)
        EXPECT_EQ(turn.generated.logprobs[i][k].logprob, whole.generated.logprobs[i][k].logprob);
    }
    before = tokens_read(turn);
    messages.push_back(turn.message());
  }
}

// At a very high temperature every token is as likely as any other, so that an answer shows its random numbers.
TEST(Conversation, LaterAnswersDrawOtherNumbers) {
  const auto on_prompt = [](int64_t, int64_t) { return true; };
  const auto on_text = [](const ReasoningSplitter::Parts&) { return true; };
  const AnswerOptions options{
      .generate = {.tokens_max = 12, .sampling = {.temperature = 1e9, .seed = 5}, .ignore_eos = true}, .think = true};
  const auto converse = [&] {
    Chat chat;
    ordered_json messages = only("Hello!");
    std::vector<std::vector<int32_t>> ids;
    for (int turn = 0; turn < 3; ++turn) {
      const Answer a = chat.conversation.answer(messages, options, {on_prompt, on_text});
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
  const RunnerOptions options = with_cache({.numerics = Numerics::serving(DType::f32, true)});
  Chat marked(options);
  ordered_json messages = ordered_json::array();
  int64_t before_answer = 0;
  for (const char* text : {"What is 5 + 6?", "Add 88 and 77.", "What is 93 - 47?"}) {
    SCOPED_TRACE(text);
    messages.push_back(user(text));
    const Answer turn = ask(marked.conversation, messages, true);
    EXPECT_FALSE(turn.reasoning.empty());
    EXPECT_EQ(turn.cached_tokens, before_answer);
    const std::string alone = marked.model.render(messages, {.think = true, .answer_next = false});
    before_answer = std::ssize(marked.model.tokenizer().encode(alone, false));
    Chat fresh(options);
    const Answer whole = ask(fresh.conversation, messages, true);
    EXPECT_EQ(whole.cached_tokens, 0);
    EXPECT_EQ(turn.generated.ids, whole.generated.ids);
    messages.push_back(turn.message());
    EXPECT_EQ(messages.back()["reasoning_content"], turn.reasoning);
  }
  messages[0] = user("Is 17 less than 25?");
  messages.push_back(user("Thanks!"));
  EXPECT_LT(ask(marked.conversation, messages, true).cached_tokens, 10);  // an earlier message changed
}

TEST(Conversation, WithoutABudgetEveryTurnIsReadWhole) {
  Chat chat((RunnerOptions()));
  ordered_json messages = only("What is 5 + 6?");
  messages.push_back(ask(chat.conversation, messages, true).message());
  messages.push_back(user("Add 88 and 77."));
  const Answer second = ask(chat.conversation, messages, true);
  EXPECT_EQ(second.cached_tokens, 0);
  EXPECT_EQ(second.content, "165");
}

// Whatever the length of a conversation, what fits the context fits the budget, beside the states of earlier turns.
TEST(Conversation, TheBudgetOfContextsIsEnoughToTheEnd) {
  Chat chat(with_cache({.context = 600}));
  ordered_json messages = ordered_json::array();
  int64_t turns = 0, cached = 0;
  for (; turns < 100; ++turns) {
    messages.push_back(user("What is 93 - 47?"));
    if (chat.conversation.prompt_tokens(messages, true) >= 590) break;
    const Answer a = ask(chat.conversation, messages, true);
    EXPECT_FALSE(a.generated.ids.empty());
    cached += a.cached_tokens > 0;
    messages.push_back(a.message());
    const MemoryUse m = chat.scheduler.memory();
    EXPECT_LE(m.bytes, m.bytes_max);
    EXPECT_EQ(m.pages_leaked, 0);
  }
  EXPECT_GT(turns, 8);
  EXPECT_EQ(cached, turns - 1);
}

TEST(Conversation, StopsInTheAnswerAndInThePrompt) {
  Chat chat(with_cache({.chunk = 8}));
  ordered_json messages = only("Who are you?");
  const auto patient = [](int64_t, int64_t) { return true; };
  int pieces = 0;
  const auto three = [&](const ReasoningSplitter::Parts&) { return ++pieces < 3; };
  const Answer cut = chat.conversation.answer(messages, {.think = false}, {patient, three});
  EXPECT_EQ(cut.generated.finish, Finish::cancelled);
  EXPECT_EQ(cut.generated.ids.size(), 3U);
  messages.push_back(cut.message());
  messages.push_back(user("What is 93 - 47?"));

  std::vector<int64_t> seen;
  const auto once = [&](int64_t read, int64_t total) {
    EXPECT_GE(total, read);
    seen.push_back(read);
    return seen.size() < 2;
  };
  const auto silent = [](const ReasoningSplitter::Parts&) -> bool { throw std::logic_error("no text was due"); };
  const Answer none = chat.conversation.answer(messages, {.think = false}, {once, silent});
  EXPECT_EQ(none.generated.finish, Finish::cancelled);
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0], 0);
  EXPECT_GT(seen[1], 0);
  EXPECT_LE(seen[1], 8);

  Chat fresh;
  EXPECT_EQ(ask(chat.conversation, messages, false).generated.ids,
            ask(fresh.conversation, messages, false).generated.ids);
}

TEST(Conversation, AFullContextIsAnErrorOrTheEnd) {
  Chat chat(with_cache({.context = 40}));
  ordered_json messages = only("Who are you?");
  const Answer first = ask(chat.conversation, messages, true, -1);
  EXPECT_EQ(first.generated.finish, Finish::length);
  EXPECT_EQ(tokens_read(first), 40);
  messages.push_back(first.message());
  messages.push_back(user("one two three four five six seven eight nine ten eleven twelve"));
  EXPECT_NE(support::error_of([&] { ask(chat.conversation, messages, true); }).find("the conversation is too long"),
            std::string::npos);
  EXPECT_EQ(ask(chat.conversation, only("What is 93 - 47?"), false).content, "46");
}

// The memo of the prompt: marks are those of texts encoded anew, and all but the last part of each, which the prompt
// continues, is found there.
TEST(Conversation, MarksTakeWhatThePromptWasEncodedFrom) {
  LanguageModel model = tiny();
  ordered_json messages = ordered_json::array({{{"role", "system"}, {"content", "Answer in words."}}});
  for (int turn = 0; turn < 5; ++turn) {
    messages.push_back(user("What is 17 + 2" + std::to_string(turn) + "?"));
    const std::string prompt = model.render(messages, {});
    text::Tokenizer::Memo memo;
    const std::vector<int32_t> ids = model.tokenizer().encode(prompt, false, memo);
    EXPECT_EQ(ids, model.tokenizer().encode(prompt, false));
    const size_t parts = memo.size();
    const std::vector<int64_t> marks = marks_of(model, messages, {}, ids, memo);
    std::vector<int64_t> anew;
    for (const ordered_json& part : {ordered_json::array({messages[0]}), messages}) {
      const auto begin = model.tokenizer().encode(model.render(part, {.answer_next = false}), false);
      anew.push_back(std::ranges::mismatch(begin, ids).in1 - begin.begin());
    }
    EXPECT_EQ(marks, anew);
    EXPECT_LE(memo.size(), parts + 2) << turn;
    messages.push_back({{"role", "assistant"}, {"content", "It is 4" + std::to_string(2 + turn) + "."}});
  }
}

}  // namespace
}  // namespace braid::engine
