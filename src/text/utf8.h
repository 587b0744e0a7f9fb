// UTF-8 for the tokenizer: what is a character, what is broken, and the three character classes its rules ask for.
// Broken bytes follow the common rule (Unicode 3.9, "maximal subpart"): each becomes one U+FFFD.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace braid::text {

enum class Utf8 { valid, invalid, truncated };  // truncated: the text ends inside a character that was good so far

struct Utf8Step {
  Utf8 kind = Utf8::valid;
  size_t length = 0;  // bytes to step over: the character, or the broken part of it
  char32_t value = 0;
};
Utf8Step utf8_step(std::string_view text, size_t at);  // at < text.size()

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

size_t utf8_valid_prefix(std::string_view text);  // text.size() when all of it is valid
bool is_ascii(std::string_view text);
void append_utf8(char32_t value, std::string& out);
// Appends `bytes` with broken parts replaced; with `more` an unfinished last character is left and its bytes not
// counted. Returns how many bytes were used.
size_t append_lossy(std::string_view bytes, bool more, std::string& out);

bool is_space(char32_t value);  // Unicode White_Space
bool is_mark(char32_t value);   // general category M
bool is_word(char32_t value);   // \w of Unicode TR 18: alphabetic, mark, decimal digit, connector, join control

}  // namespace braid::text
