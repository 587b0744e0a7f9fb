#include "grammar/token_trie.h"

#include <algorithm>

#include "sys/error.h"

namespace braid::grammar {
namespace {

constexpr size_t kTokenBytesMax = 4096;  // a longer token is never allowed: the path of a walk is as deep

void check_bytes(const std::vector<std::string>& tokens) {
  std::vector<bool> found(256);
  for (const std::string& token : tokens) {
    if (token.size() == 1) found[static_cast<uint8_t>(token[0])] = true;
  }
  // Bytes of text: printable ASCII and the newline, continuation bytes, first bytes of longer characters.
  for (int byte = 0; byte < 256; ++byte) {
    const bool text =
        byte == '\n' || (byte >= 0x20 && byte < 0x7f) || (byte >= 0x80 && byte < 0xc0) || (byte >= 0xc2 && byte < 0xf5);
    if (text && !found[static_cast<size_t>(byte)])
      fail("structured output", {.what = "the model's vocabulary cannot spell every text",
                                 .got = fmt::format("no token for the byte 0x{:02x}", byte),
                                 .hint = "a request without response_format, guided decoding and tool_choice"});
  }
}

}  // namespace

TokenTrie::TokenTrie(const std::vector<std::string>& tokens, std::span<const int64_t> ends) {
  check_bytes(tokens);
  for (const int64_t id : ends) {
    if (id >= 0 && id < std::ssize(tokens)) ends_.push_back(static_cast<int32_t>(id));
  }
  std::vector<int32_t> order;
  for (size_t id = 0; id < tokens.size(); ++id) {
    offsets_.push_back(text_.size());
    text_ += tokens[id];
    const bool end = std::find(ends_.begin(), ends_.end(), static_cast<int32_t>(id)) != ends_.end();
    const bool usable =
        !tokens[id].empty() && tokens[id].size() <= kTokenBytesMax && tokens[id] != std::string(1, kTagMark);
    if (usable && !end) order.push_back(static_cast<int32_t>(id));
  }
  offsets_.push_back(text_.size());
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const int way = bytes(a).compare(bytes(b));
    return way != 0 ? way < 0 : a < b;
  });
  std::vector<size_t> path;  // the nodes of the last token
  std::string_view last;
  const auto leave = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back()) nodes_[path.back()].skip = static_cast<int32_t>(nodes_.size());
  };
  for (const int32_t id : order) {
    const std::string_view token = bytes(id);
    const auto common =
        static_cast<size_t>(std::mismatch(last.begin(), last.end(), token.begin(), token.end()).first - last.begin());
    leave(common);
    for (size_t i = common; i < token.size(); ++i) {
      path.push_back(nodes_.size());
      nodes_.push_back({.first = static_cast<int32_t>(ids_.size()),
                        .depth = static_cast<uint16_t>(i + 1),
                        .byte = static_cast<uint8_t>(token[i])});
    }
    ids_.push_back(id);
    ++nodes_[path.back()].count;
    longest_ = std::max(longest_, static_cast<int32_t>(token.size()));
    last = token;
  }
  leave(0);
}

std::string_view TokenTrie::bytes(int32_t id) const {
  if (id < 0 || id >= size()) return {};
  const auto i = static_cast<size_t>(id);
  return std::string_view(text_).substr(offsets_[i], offsets_[i + 1] - offsets_[i]);
}

}  // namespace braid::grammar
