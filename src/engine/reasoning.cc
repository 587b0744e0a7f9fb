#include "engine/reasoning.h"

#include <algorithm>

#include "engine/think_tags.h"

namespace braid::engine {

std::string ReasoningSplitter::take(size_t n) {
  std::string piece = held_.substr(0, n);
  held_.erase(0, n);
  if (trim_) piece.erase(0, std::min(piece.find_first_not_of('\n'), piece.size()));
  trim_ = trim_ && piece.empty();
  return piece;
}

// Up to the end of the reasoning, or to what may be the beginning of a tag. False: more text is needed.
bool ReasoningSplitter::read_reasoning(Parts& out) {
  const size_t close = held_.find(kThinkEnd), call = held_.find(kCallBegin), at = std::min(close, call);
  if (at == held_.npos) {
    out.reasoning += take(held_.size() - std::max(partial_tag(held_, kThinkEnd), partial_tag(held_, kCallBegin)));
    return false;
  }
  out.reasoning += take(at);
  if (at == close) held_.erase(0, kThinkEnd.size());
  thinking_ = false;
  trim_ = true;
  return true;
}

// Is this reasoning, or an answer? False: more text is needed.
bool ReasoningSplitter::begin() {
  const size_t first = std::min(held_.find_first_not_of(kThinkSpace), held_.size());
  const std::string_view text = std::string_view(held_).substr(first);
  if (kThinkBegin.starts_with(text) && text != kThinkBegin) return false;
  thinking_ = text.starts_with(kThinkBegin);
  answering_ = !thinking_;
  if (thinking_) held_.erase(0, first + kThinkBegin.size());
  trim_ = trim_ || thinking_;
  return true;
}

ReasoningSplitter::Parts ReasoningSplitter::push(std::string_view text) {
  Parts out;
  held_ += text;
  while (!answering_) {
    if (!(thinking_ ? read_reasoning(out) : begin())) return out;
  }
  out.content = take(held_.size());
  return out;
}

ReasoningSplitter::Parts ReasoningSplitter::finish() {
  Parts out;
  (thinking_ ? out.reasoning : out.content) = take(held_.size());
  return out;
}

bool ends_in_think(std::string_view prompt) {
  return prompt.substr(0, prompt.find_last_not_of(kThinkSpace) + 1).ends_with(kThinkBegin);
}

bool ends_in_closed_think(std::string_view prompt) { return prompt.ends_with(kThinkEnd); }

}  // namespace braid::engine
