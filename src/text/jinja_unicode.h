// Unicode for template values: code points of UTF-8 text, case and character classes as in Python's str.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace braid::text::jinja {

// All of these expect valid text (sys/utf8.h checks it). next_point moves `pos` past one code point; last_point moves
// it back by one.
char32_t next_point(std::string_view bytes, size_t& pos);
char32_t last_point(std::string_view bytes, size_t& pos);
size_t offset_of(std::string_view bytes, int64_t points, int64_t index);  // byte offset; `points` = utf8_count(bytes)

bool is_space(char32_t c);
bool is_printable(char32_t c);  // repr() shows it as it is
bool is_letter(char32_t c);
bool is_decimal(char32_t c);
bool is_digit_point(char32_t c);  // also those that make no numbers: superscripts, circled digits
bool is_numeric(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_cased(char32_t c);

// One-to-one case mapping, except for the capitals of some letters that are several (ligatures, sharp s), and for the
// small sigma that ends a word.
std::string to_upper(std::string_view bytes);
std::string to_lower(std::string_view bytes);
std::string to_folded(std::string_view bytes);   // for comparisons, as str.casefold
std::string to_title(std::string_view bytes);    // after every uncased character, as str.title
std::string to_capital(std::string_view bytes);  // the first character alone
std::string swap_case(std::string_view bytes);

}  // namespace braid::text::jinja
