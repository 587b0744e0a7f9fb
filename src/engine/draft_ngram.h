// Drafts from a text's own past: what followed the last earlier occurrence of its end, the longest one that is found.
// Pairs of tokens are hashed; of the positions that end in the same pair the latest few are compared backwards, so that
// a step costs the same at any length of the text.
#pragma once
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace braid::engine {

class NgramIndex {
 public:
  static constexpr int64_t kLongest = 32;  // tokens of a match that are compared; longer ones count as this
  // Of memory, at most, for a token of the text: an entry of the table with its bucket, and a position. Both grow by
  // doubling.
  static constexpr int64_t kTokenBytes = 64;

  struct Match {
    int64_t tokens = 0;  // that are equal before both positions; 0: none was found
    int64_t next = 0;    // position of what followed the earlier one
  };
  // `text`: that of the last call, with more after it.
  Match find(std::span<const int32_t> text);
  // What a match predicts, of any length: past the end of the text it repeats what it said itself.
  static std::vector<int32_t> continuation(std::span<const int32_t> text, const Match& match, int64_t tokens);

 private:
  std::unordered_map<uint64_t, int64_t> last_;  // by pair: the last position after it
  std::vector<int64_t> before_;                 // by position: the one before it after the same pair, or -1
};

}  // namespace braid::engine
