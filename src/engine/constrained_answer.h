// The constraint of one answer (grammar/constraint.h), token by token. It holds for the answer alone: thinking, which a
// prompt may have opened, is free up to </think>, only that it cannot end an answer that may not be cut. What follows
// the tag in the same token has to be allowed, and so does <tool_call>, which ends thinking too (engine/reasoning.h).
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "grammar/constraint.h"

namespace braid::engine {

class ConstrainedAnswer {
 public:
  ConstrainedAnswer(std::shared_ptr<const grammar::Constraint> constraint, bool thinking)
      : constraint_(std::move(constraint)), matcher_(constraint_), thinking_(thinking) {}

  // Sets the logits of tokens that may not come next to -infinity, of `tokens_left` that may be written (negative: any
  // number). `allows` may still refuse one that ends the thinking.
  void mask(std::span<float> logits, int64_t tokens_left);
  bool allows(int32_t id) const;
  void push(int32_t id);
  bool thinking() const { return thinking_; }
  bool finished() const { return !thinking_ && matcher_.finished(); }  // nothing may follow

 private:
  // The text after the end of thinking, with the token; false: it goes on.
  bool ends_thinking(int32_t id, std::string& rest) const;

  std::shared_ptr<const grammar::Constraint> constraint_;
  grammar::Matcher matcher_;
  bool thinking_;
  std::string held_;  // of the thinking: what may be the beginning of a tag
};

}  // namespace braid::engine
