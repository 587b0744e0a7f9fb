// A tag that may be arriving: what a stream of text has to hold back.
#pragma once
#include <algorithm>
#include <string_view>

namespace braid::text {

// Length of the longest end of `text` that is a proper beginning of `tag`.
inline size_t partial_tag(std::string_view text, std::string_view tag) {
  for (size_t n = std::min(text.size(), tag.size() - 1); n > 0; --n) {
    if (text.substr(text.size() - n) == tag.substr(0, n)) return n;
  }
  return 0;
}

}  // namespace braid::text
