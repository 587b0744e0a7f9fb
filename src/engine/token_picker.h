// The tokens of one answer: which comes next, and whether it is the last. For scheduler.h, and for tests that
// generate step by step.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/constrained_answer.h"
#include "engine/generate.h"

namespace braid::engine {

class TokenPicker {
 public:
  // `seen`: every token of the sequence before the answer, for the repeat penalty.
  TokenPicker(const GenerateOptions& options, std::vector<int32_t> seen, std::span<const int64_t> eos);

  bool may_continue() const { return options_.tokens_max < 0 || std::ssize(ids_) < options_.tokens_max; }
  // From the logits after the last token. An end token is part of the answer.
  int32_t next(std::span<const float> logits);
  // What would be drawn after the answer and these tokens if the logits were so, but for limits and constraints;
  // nullopt where they are not finite. It is likely the token that `next` will draw there, if the logits are alike.
  std::optional<int32_t> guess(std::span<const float> logits, std::span<const int32_t> ahead) const;
  bool ended() const { return ended_; }                                     // the last token is an end token
  bool complete() const { return constraint_ && constraint_->finished(); }  // nothing may be added to the answer
  void set_logprob(double value) { logprobs_.back()[0].logprob = value; }   // of the last token
  // Every token of the sequence, those of the answer included.
  std::span<const int32_t> text() const { return seen_; }
  std::span<const int32_t> answer() const { return ids_; }
  const std::vector<std::vector<TokenLogprob>>& logprobs() const { return logprobs_; }  // of the answer
  int64_t tokens_left(int64_t otherwise) const {
    return options_.tokens_max < 0 ? otherwise : options_.tokens_max - std::ssize(ids_);
  }
  // The answer so far, moved away.
  void take(Generated& out);

 private:
  int32_t sampled(std::span<const float> logits) const;
  int32_t drawn(std::span<const float> logits) const;
  int32_t constrained(std::span<const float> logits);

  GenerateOptions options_;
  std::vector<int32_t> seen_, ids_;
  std::vector<std::vector<TokenLogprob>> logprobs_;
  std::span<const int64_t> eos_;
  ReasoningLimit limit_;
  std::optional<ConstrainedAnswer> constraint_;
  uint64_t first_;     // position of the first draw
  Thinking thinking_;  // as far as its tags are tokens
  bool ended_ = false;
};

}  // namespace braid::engine
