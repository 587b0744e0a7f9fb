// Pieces of windows of a text, as models read them.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "eval/perplexity.h"

namespace braid::eval {

struct WindowPiece {
  std::span<const int32_t> tokens{};
  bool begins = false;             // starts a window: from an empty state
  std::vector<int64_t> rows{};     // of `tokens`, whose predictions are scored,
  std::vector<int32_t> targets{};  // and what they should have predicted
};

// Calls `body` with pieces of at most `chunk` tokens, in order, until `progress` (tokens read so far) returns false.
void read_windows(std::span<const int32_t> ids, std::span<const Window> windows, std::optional<int32_t> bos,
                  int64_t chunk, const sys::FunctionRef<void(const WindowPiece&)>& body,
                  const sys::FunctionRef<bool(int64_t)>& progress);

}  // namespace braid::eval
