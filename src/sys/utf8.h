// UTF-8: characters and broken bytes. Broken bytes follow the common rule (Unicode 3.9, "maximal subpart"): each
// becomes one U+FFFD.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace braid::sys {

enum class Utf8 { valid, invalid, truncated };  // truncated: the text ends inside a character that was valid so far

struct Utf8Step {
  Utf8 kind = Utf8::valid;
  size_t length = 0;  // bytes to step over: the character, or the broken part of it
  char32_t value = 0;
};
Utf8Step utf8_step(std::string_view text, size_t at);  // at < text.size()

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// Whether this is a continuation byte.
constexpr bool utf8_continues(char byte) { return (byte & 0xc0) == 0x80; }
size_t utf8_previous(std::string_view text, size_t at);  // start of the character before `at`; at > 0
int64_t utf8_count(std::string_view text);               // characters
size_t utf8_valid_prefix(std::string_view text);         // text.size() when all of it is valid
void append_utf8(char32_t value, std::string& out);      // value <= 0x10ffff
// Appends `bytes` with broken parts replaced; with `more`, an incomplete last character is left out. Returns how many
// bytes were used.
size_t append_lossy(std::string_view bytes, bool more, std::string& out);

}  // namespace braid::sys
