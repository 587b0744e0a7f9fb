// Answers to whole conversations, one after another: renders the messages, has the scheduler generate, and takes
// thinking and answer apart. A chat sends the same messages again with a few more at the end; what need not be read
// again is the scheduler's to know, whose cache also has the states that this asks it to keep.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/language_model.h"
#include "engine/reasoning.h"
#include "engine/scheduler.h"
#include "sys/function_ref.h"

namespace braid::engine {

struct AnswerOptions {
  GenerateOptions generate{};
  std::optional<bool> think{};  // nullopt: the template's default
};

// Called while an answer is generated; false stops it, and the text so far is the answer.
struct AnswerListener {
  sys::FunctionRef<bool(int64_t read, int64_t total)> on_prompt;  // before each piece of the prompt
  sys::FunctionRef<bool(const ReasoningSplitter::Parts&)> on_text;
};

struct Answer {
  std::vector<int32_t> prompt_ids;  // of the whole conversation
  int64_t cached_tokens = 0;        // how many of them had been read before
  Generated generated;              // its timings count what was read now
  std::string reasoning, content;

  nlohmann::ordered_json message() const;  // as templates take it: role, content and, if any, reasoning_content
};

// Positions in the prompt of a conversation whose states are worth keeping: after its instructions, which others may
// share, and before the prompt of the answer, which the next turn may render differently. `prompt`: the messages
// rendered with the same options and encoded with `memo`, so that what it has in common with them is not encoded again.
std::vector<int64_t> marks_of(LanguageModel& model, const nlohmann::ordered_json& messages, RenderOptions options,
                              const std::vector<int32_t>& prompt, text::Tokenizer::Memo& memo);

class Conversation {
 public:
  // Both must outlive it. What turns have in common is read once if the runner has a budget (RunnerOptions::memory).
  Conversation(LanguageModel& model, Scheduler& scheduler) : model_(model), scheduler_(scheduler) {}

  // `messages`: an array of {role, content, ...}. Error when the template refuses them, or when they leave no room for
  // an answer in the context.
  Answer answer(const nlohmann::ordered_json& messages, const AnswerOptions& options, const AnswerListener& listener);

  // Tokens of the prompt that `answer` would read.
  int64_t prompt_tokens(const nlohmann::ordered_json& messages, std::optional<bool> think);

 private:
  std::vector<int32_t> encode(const std::string& prompt, text::Tokenizer::Memo& memo);

  LanguageModel& model_;
  Scheduler& scheduler_;
  std::vector<int32_t> read_;  // for the last answer, its own tokens included
  bool rewritten_ = false;     // a prompt did not begin with that: the template rewrites answers
  int64_t position_ = 0;       // after the last draw: templates may drop tokens, but no random number is reused
};

}  // namespace braid::engine
