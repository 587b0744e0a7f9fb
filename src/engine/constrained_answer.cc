#include "engine/constrained_answer.h"

#include <algorithm>
#include <limits>

#include "text/partial_tag.h"

namespace braid::engine {
namespace {

constexpr std::string_view kThinkEnd = "</think>", kCallBegin = "<tool_call>";

}  // namespace

void ConstrainedAnswer::mask(std::span<float> logits, int64_t tokens_left) {
  if (!thinking_) return matcher_.mask(logits, constraint_->may_be_cut() ? -1 : tokens_left);
  if (constraint_->may_be_cut()) return;
  for (const int32_t id : constraint_->trie().ends()) {
    if (static_cast<size_t>(id) < logits.size())
      logits[static_cast<size_t>(id)] = -std::numeric_limits<float>::infinity();
  }
}

bool ConstrainedAnswer::ends_thinking(int32_t id, std::string& rest) const {
  std::string_view bytes = constraint_->trie().bytes(id);
  const bool tag = bytes.starts_with(grammar::kTagMark);
  if (tag) bytes.remove_prefix(1);
  const std::string text = held_ + std::string(bytes);
  const size_t end = text.find(kThinkEnd), call = text.find(kCallBegin);
  if (end == text.npos && call == text.npos) {
    rest = text;
    return false;
  }
  rest = text.substr(end < call ? end + kThinkEnd.size() : call);
  if (tag && call < end) rest.insert(rest.begin(), grammar::kTagMark);
  return true;
}

bool ConstrainedAnswer::allows(int32_t id) const {
  std::string rest;
  if (!thinking_ || !ends_thinking(id, rest)) return true;
  grammar::Matcher after = matcher_;
  return after.accept(rest);
}

void ConstrainedAnswer::push(int32_t id) {
  if (!thinking_) return static_cast<void>(matcher_.accept(constraint_->trie().bytes(id)));
  std::string rest;
  if (ends_thinking(id, rest)) {
    thinking_ = false;
    matcher_.accept(rest);
  } else {
    const size_t keep = std::max(text::partial_tag(rest, kThinkEnd), text::partial_tag(rest, kCallBegin));
    held_ = rest.substr(rest.size() - keep);
  }
}

}  // namespace braid::engine
