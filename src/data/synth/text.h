// Runs of letters, digits or words in a text, in ASCII: the text of this folder is.
#pragma once
#include <cctype>
#include <charconv>
#include <string>
#include <string_view>
#include <vector>

namespace braid::synth {

inline bool is_digit(char ch) { return ch >= '0' && ch <= '9'; }
inline bool is_letter(char ch) { return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z'); }
inline bool is_word(char ch) { return is_digit(ch) || is_letter(ch); }
inline char lower(char ch) { return ch >= 'A' && ch <= 'Z' ? static_cast<char>(ch - 'A' + 'a') : ch; }
inline char upper(char ch) { return ch >= 'a' && ch <= 'z' ? static_cast<char>(ch - 'a' + 'A') : ch; }

inline std::string capitals(std::string_view text) {
  std::string out(text);
  for (char& ch : out) ch = upper(ch);
  return out;
}

// The longest runs of characters that satisfy `member`, in order; views into `text`.
inline std::vector<std::string_view> runs_of(std::string_view text, bool (*member)(char)) {
  std::vector<std::string_view> out;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    while (i < text.size() && member(text[i])) ++i;
    if (i > begin) out.push_back(text.substr(begin, i - begin));
    while (i < text.size() && !member(text[i])) ++i;
  }
  return out;
}

// Digits, at most 18 of them.
inline int64_t number_of(std::string_view digits) {
  int64_t n = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), n);
  return n;
}

}  // namespace braid::synth
