// Pieces of windows of a text, as models read them.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "eval/perplexity.h"

namespace braid::eval {

struct WindowPiece {
  std::span<const int32_t> tokens{};
  bool begins = false;             // a window: the state is empty before it
  std::vector<int64_t> rows{};     // of `tokens`, whose prediction is scored,
  std::vector<int32_t> targets{};  // and what they should have predicted
};

// `body` for every piece of at most `chunk` tokens, in order, until `progress`, told the tokens read so far, is false.
void read_windows(std::span<const int32_t> ids, std::span<const Window> windows, std::optional<int32_t> bos,
                  int64_t chunk, const sys::FunctionRef<void(const WindowPiece&)>& body,
                  const sys::FunctionRef<bool(int64_t)>& progress);

}  // namespace braid::eval
