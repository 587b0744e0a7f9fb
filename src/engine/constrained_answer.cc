#include "engine/constrained_answer.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <vector>

namespace braid::engine {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

std::string_view unmarked(std::string_view bytes) {
  return bytes.starts_with(grammar::kTagMark) ? bytes.substr(1) : bytes;
}

int32_t tag_of(const grammar::TokenTrie& trie) {
  for (int32_t id = 0; id < trie.size(); ++id) {
    if (unmarked(trie.bytes(id)) == kThinkBegin) return id;
  }
  return -1;
}

}  // namespace

ConstrainedAnswer::ConstrainedAnswer(std::shared_ptr<const grammar::Constraint> constraint, Thinking thinking)
    : constraint_(std::move(constraint)),
      matcher_(constraint_),
      tags_(thinking),
      tag_(thinking == Thinking::may_open ? tag_of(constraint_->trie()) : -1) {}

void ConstrainedAnswer::mask(std::span<float> logits, int64_t tokens_left) {
  const int64_t left = constraint_->may_be_cut() ? -1 : tokens_left;
  if (tags_.state() == Thinking::none) return matcher_.mask(logits, left);
  if (tags_.state() == Thinking::may_open) return mask_opening(logits, left);
  if (constraint_->may_be_cut()) return;
  for (const int32_t id : constraint_->trie().ends()) {
    if (static_cast<size_t>(id) < logits.size()) logits[static_cast<size_t>(id)] = kNever;
  }
}

// What the answer may begin with, and <think>: the token, or its pieces where the vocabulary has none. White space is
// the answer's alone, so that a model is not led to a tag that it did not want.
void ConstrainedAnswer::mask_opening(std::span<float> logits, int64_t tokens_left) {
  const std::vector<float> free(logits.begin(), logits.end());
  grammar::Matcher answer = matcher_;
  if (tags_.held().empty() || answer.accept(tags_.held())) {
    answer.mask(logits, tokens_left);
  } else {
    std::ranges::fill(logits, kNever);
  }
  const auto allow = [&](int32_t id) {
    if (static_cast<size_t>(id) < logits.size() && opens(id))
      logits[static_cast<size_t>(id)] = free[static_cast<size_t>(id)];
  };
  if (tag_ >= 0) return allow(tag_);
  for (int32_t id = 0; id < constraint_->trie().size(); ++id) allow(id);
}

bool ConstrainedAnswer::opens(int32_t id) const {
  const std::string_view bytes = unmarked(constraint_->trie().bytes(id));
  if (bytes.empty() || kThinkBegin.find(bytes[0]) == kThinkBegin.npos) return false;
  return tags_.after(bytes).state != Thinking::none && std::ranges::count(constraint_->trie().ends(), id) == 0;
}

// The mark of a token that is a tag stands before the token's own text.
ThinkTags::Next ConstrainedAnswer::after(int32_t id) const {
  const std::string_view marked = constraint_->trie().bytes(id), bytes = unmarked(marked);
  const bool tag = marked.size() > bytes.size();
  ThinkTags::Next next = tags_.after(bytes);
  const bool whole = next.answer.size() - std::min(next.before, next.answer.size()) == bytes.size();
  if (tag && whole && next.state == Thinking::none) next.answer.insert(next.before, 1, grammar::kTagMark);
  return next;
}

bool ConstrainedAnswer::allows(int32_t id) const {
  if (tags_.state() == Thinking::none) return true;
  const ThinkTags::Next next = after(id);
  grammar::Matcher answer = matcher_;
  return next.state != Thinking::none || answer.accept(next.answer);
}

void ConstrainedAnswer::push(int32_t id) {
  if (tags_.state() == Thinking::none) return static_cast<void>(matcher_.accept(constraint_->trie().bytes(id)));
  ThinkTags::Next next = after(id);
  if (next.state == Thinking::none) matcher_.accept(next.answer);
  tags_.take(std::move(next));
}

}  // namespace braid::engine
