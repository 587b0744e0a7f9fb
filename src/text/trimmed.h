// Text without the white space around it.
#pragma once
#include <string_view>

namespace braid::text {

constexpr std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpaces);
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

}  // namespace braid::text
