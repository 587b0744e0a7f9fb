#include "engine/think_tags.h"

#include <algorithm>

#include "text/partial_tag.h"

namespace braid::engine {

ThinkTags::Next ThinkTags::after(std::string_view piece) const {
  std::string text = held_ + std::string(piece);
  Thinking state = state_;
  if (state == Thinking::may_open) {
    const size_t first = std::min(text.find_first_not_of(kThinkSpace), text.size());
    const std::string_view begun = std::string_view(text).substr(first);
    if (begun.starts_with(kThinkBegin)) {
      text.erase(0, first + kThinkBegin.size());
      state = Thinking::open;
    } else if (kThinkBegin.starts_with(begun)) {
      return {.state = state, .held = std::move(text)};
    } else {
      state = Thinking::none;
    }
  }
  if (state == Thinking::none) return {.answer = std::move(text), .before = held_.size()};
  const size_t close = text.find(kThinkEnd), call = text.find(kCallBegin);
  if (close == text.npos && call == text.npos) {
    const size_t keep = std::max(text::partial_tag(text, kThinkEnd), text::partial_tag(text, kCallBegin));
    return {.state = state, .held = text.substr(text.size() - keep)};
  }
  if (close < call) return {.answer = text.substr(close + kThinkEnd.size())};
  const size_t begun = text.size() - std::min(text.size(), piece.size());  // of the piece in `text`
  return {.answer = text.substr(call), .before = begun > call ? begun - call : 0};
}

}  // namespace braid::engine
