// Answers to whole conversations from one sequence, whose state is retained between them. A chat sends the same
// messages again with a few more at the end: when the new prompt starts with every token that the sequence has read,
// only the rest is read. Templates that drop the thinking of earlier turns rewrite the last answer; a recurrent state
// cannot be rolled back, so the state before the answer is marked (Runner::mark, with a spare slot) and reading
// continues from there. When an earlier message changes, the sequence is reset. What chat and a server share.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/generate.h"
#include "engine/language_model.h"
#include "engine/reasoning.h"
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
  int64_t cached_tokens = 0;        // how many of them the sequence had already read
  Generated generated;              // its timings count what was read now
  std::string reasoning, content;

  nlohmann::ordered_json message() const;  // as templates take it: role, content and, if any, reasoning_content
};

class Conversation {
 public:
  // The model must outlive it; the sequence is for its use alone.
  explicit Conversation(LanguageModel& model, int64_t sequence = 0) : model_(model), sequence_(sequence) {}

  // `messages`: an array of {role, content, ...}. Error when the template refuses them, or when they leave no room for
  // an answer in the context; the sequence is untouched then.
  Answer answer(const nlohmann::ordered_json& messages, const AnswerOptions& options, const AnswerListener& listener);

  // Tokens of the prompt that `answer` would read.
  int64_t prompt_tokens(const nlohmann::ordered_json& messages, std::optional<bool> think);
  const std::vector<int32_t>& read() const { return read_; }  // the tokens in its state

 private:
  std::vector<int32_t> encode(const std::string& prompt);
  void keep_common(const std::vector<int32_t>& prompt);
  int64_t mark_position(const nlohmann::ordered_json& messages, const RenderOptions& options,
                        const std::vector<int32_t>& prompt);
  bool read_all_but_last_piece(std::span<const int32_t>& fresh, int64_t mark, Timings& timings,
                               const AnswerListener& listener);

  LanguageModel& model_;
  int64_t sequence_;
  std::vector<int32_t> read_;
  bool rewritten_ = false;  // a prompt did not begin with the last answer as it was read: the template rewrites answers
  int64_t position_ = 0;    // after the last draw: templates may drop tokens, but no random number is reused
};

}  // namespace braid::engine
