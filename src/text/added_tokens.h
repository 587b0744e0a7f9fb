// Tokens that are cut out of the text before anything else looks at it: special tokens and words added to a vocabulary.
// The leftmost match wins; of several at one position, the longest.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sys/function_ref.h"

namespace braid::text {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;      // left out by decode when asked
  bool single_word = false;  // not inside a word
  bool lstrip = false;       // swallows the white space before it
  bool rstrip = false;       // and after it
  bool normalized = false;   // matched in the normalised text, in its own normalised form
  std::string decoded{};     // what it stands for in a text: its content, normalised where it is matched so
};

class AddedTokenFinder {
 public:
  void add(const AddedToken& token, std::string content);  // `content` as it appears in the searched text
  void finish();                                           // after the last add
  bool empty() const { return tokens_.empty(); }
  // Calls part(piece, offset of the piece, id) from left to right; id is -1 for text between tokens.
  using Part = sys::FunctionRef<void(std::string_view, size_t, int32_t)>;
  void split(std::string_view text, Part part) const;

 private:
  struct Token {
    std::string content;
    int32_t id;
    bool single_word, lstrip, rstrip;
  };
  const Token* longest_at(std::string_view text, size_t at) const;
  std::vector<Token> tokens_;              // sorted by content
  std::array<int32_t, 257> first_byte_{};  // tokens_[first_byte_[b] .. first_byte_[b + 1]) begin with byte b
};

}  // namespace braid::text
