// The three character classes that tokenizer rules use.
#pragma once

namespace braid::text {

bool is_space(char32_t value);  // Unicode White_Space
bool is_mark(char32_t value);   // general category M
bool is_word(char32_t value);   // \w of Unicode TR 18: alphabetic, mark, decimal digit, connector, join control

}  // namespace braid::text
