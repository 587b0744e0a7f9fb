// The constraint of one answer (grammar/constraint.h), token by token. It holds for the answer alone: thinking, which a
// prompt may have opened, or the model opens first, is free up to </think>, only that it cannot end an answer that may
// not be cut. What follows the tag in the same token has to be allowed, and so does <tool_call>, which ends thinking
// too.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "engine/think_tags.h"
#include "grammar/constraint.h"

namespace braid::engine {

class ConstrainedAnswer {
 public:
  ConstrainedAnswer(std::shared_ptr<const grammar::Constraint> constraint, Thinking thinking);

  // Sets the logits of tokens that may not come next to -infinity, of `tokens_left` that may be written (negative: any
  // number). `allows` may still refuse one that ends the thinking.
  void mask(std::span<float> logits, int64_t tokens_left);
  bool allows(int32_t id) const;
  void push(int32_t id);
  bool finished() const { return tags_.state() == Thinking::none && matcher_.finished(); }  // nothing may follow

 private:
  void mask_opening(std::span<float> logits, int64_t tokens_left);
  bool opens(int32_t id) const;
  ThinkTags::Next after(int32_t id) const;

  std::shared_ptr<const grammar::Constraint> constraint_;
  grammar::Matcher matcher_;  // of the answer, without what `tags_` holds
  ThinkTags tags_;
  int32_t tag_;  // the token <think>; -1: none, or it may not come
};

}  // namespace braid::engine
