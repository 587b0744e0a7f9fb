// The tokens of a vocabulary as a trie over their bytes, so that a mask is one walk in which tokens share the work of
// their common beginnings. Made once per tokenizer, immutable.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace braid::grammar {

// Begins the bytes of a token that is a tag, such as <tool_call>: no text has this byte, so that free text never holds
// tags, and a program says where they belong (Builder::tag).
constexpr char kTagMark = '\xff';

class TokenTrie {
 public:
  // In depth-first order: the children of a node follow it, up to `skip`.
  struct Node {
    int32_t skip = 0;              // the first node after those below this one
    int32_t first = 0, count = 0;  // tokens that end here: ids() [first, first + count)
    uint16_t depth = 0;            // bytes up to this node, its own included
    uint8_t byte = 0;
  };

  // `tokens`: the bytes of each id; empty for tokens that add no text. `ends`: the ids that end an answer; they are not
  // in the trie. Error unless every byte of UTF-8 text is a token by itself: without them a text could reach a place
  // where no token fits.
  TokenTrie(const std::vector<std::string>& tokens, std::span<const int64_t> ends);

  const std::vector<Node>& nodes() const { return nodes_; }
  std::span<const int32_t> ids(const Node& node) const {
    return std::span(ids_).subspan(static_cast<size_t>(node.first), static_cast<size_t>(node.count));
  }
  std::string_view bytes(int32_t id) const;
  std::span<const int32_t> ends() const { return ends_; }
  int32_t size() const { return static_cast<int32_t>(offsets_.size()) - 1; }  // ids
  int32_t longest() const { return longest_; }                                // bytes of a token

 private:
  std::vector<Node> nodes_;
  std::vector<int32_t> ids_, ends_;
  std::string text_;  // all bytes by id
  std::vector<size_t> offsets_;
  int32_t longest_ = 0;
};

}  // namespace braid::grammar
