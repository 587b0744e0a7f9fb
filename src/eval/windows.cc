#include "eval/windows.h"

#include <fmt/format.h>

#include <algorithm>

#include "sys/error.h"

namespace braid::eval {

std::vector<Window> plan_windows(int64_t tokens, int64_t window, int64_t stride) {
  const int64_t n = std::min(window, tokens);
  std::vector<Window> list;
  if (stride > 0) {
    if (n >= 2) list.push_back({0, n, 1});
    while (!list.empty() && list.back().end < tokens) {
      const int64_t end = std::min(list.back().end + stride, tokens);
      list.push_back({end - n, end, list.back().end});
    }
  } else {
    for (int64_t begin = 0; n >= 3 && begin + n <= tokens; begin += n)
      list.push_back({begin, begin + n, begin + n / 2 + 1});
  }
  if (list.empty()) {
    fail("eval", {.what = "too few tokens to score any",
                  .got = fmt::format("{} in windows of {}", tokens, window),
                  .expected = "at least 3",
                  .hint = "a longer text"});
  }
  return list;
}

void read_windows(std::span<const int32_t> ids, std::span<const Window> windows, std::optional<int32_t> bos,
                  int64_t chunk, const sys::FunctionRef<void(const WindowPiece&)>& body,
                  const sys::FunctionRef<bool(int64_t)>& progress) {
  int64_t read = 0;
  for (const Window& w : windows) {
    std::vector<int32_t> tokens(ids.begin() + w.begin, ids.begin() + w.end);
    if (bos) tokens[0] = *bos;
    for (int64_t begin = 0; begin < std::ssize(tokens); begin += chunk) {
      const int64_t n = std::min(chunk, std::ssize(tokens) - begin);
      WindowPiece piece{.tokens = std::span(tokens).subspan(static_cast<size_t>(begin), static_cast<size_t>(n)),
                        .begins = begin == 0};
      for (int64_t row = 0; row < n; ++row) {
        const int64_t target = w.begin + begin + row + 1;
        if (target < w.first || target >= w.end) continue;
        piece.rows.push_back(row);
        piece.targets.push_back(ids[static_cast<size_t>(target)]);
      }
      body(piece);
      read += n;
      if (!progress(read)) return;
    }
  }
}

}  // namespace braid::eval
