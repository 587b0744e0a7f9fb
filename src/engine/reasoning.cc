#include "engine/reasoning.h"

#include <algorithm>
#include <array>

namespace braid::engine {
namespace {

constexpr std::string_view kOpen = "<think>", kClose = "</think>", kToolCall = "<tool_call>";

// Length of the longest end of `text` that is a proper beginning of `tag`.
size_t partial(std::string_view text, std::string_view tag) {
  for (size_t n = std::min(text.size(), tag.size() - 1); n > 0; --n) {
    if (text.substr(text.size() - n) == tag.substr(0, n)) return n;
  }
  return 0;
}

}  // namespace

ReasoningSplitter::Parts ReasoningSplitter::push(std::string_view text) {
  Parts out;
  held_ += text;
  while (true) {
    const size_t close = held_.find(thinking_ ? kClose : kOpen),
                 call = thinking_ ? held_.find(kToolCall) : std::string::npos;
    const size_t at = std::min(close, call);
    std::string& part = thinking_ ? out.reasoning : out.content;
    std::string piece;
    if (at == std::string::npos) {
      const size_t keep =
          thinking_ ? std::max(partial(held_, kClose), partial(held_, kToolCall)) : partial(held_, kOpen);
      piece = held_.substr(0, held_.size() - keep);
      held_.erase(0, held_.size() - keep);
    } else {
      piece = held_.substr(0, at);
      held_.erase(0, at == close ? at + (thinking_ ? kClose : kOpen).size() : at);
    }
    if (trim_) piece.erase(0, std::min(piece.find_first_not_of('\n'), piece.size()));
    trim_ = trim_ && piece.empty();
    part += piece;
    if (at == std::string::npos) return out;
    thinking_ = !thinking_;
    trim_ = true;
  }
}

ReasoningSplitter::Parts ReasoningSplitter::finish() {
  Parts out;
  (thinking_ ? out.reasoning : out.content) = std::move(held_);
  held_.clear();
  return out;
}

bool ends_in_think(std::string_view prompt) {
  const size_t open = prompt.rfind(kOpen);
  return open != std::string_view::npos && prompt.find(kClose, open) == std::string_view::npos;
}

}  // namespace braid::engine
