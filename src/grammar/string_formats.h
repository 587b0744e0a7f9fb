// How the texts of JSON Schema's formats look, as regular expressions (grammar/regex.h).
#pragma once
#include <string>
#include <string_view>

namespace braid::grammar {

// Empty: the name says nothing about the text, as those that JSON Schema does not define. Error, beginning with
// `where`, for one that it defines and that is not supported.
std::string format_pattern(const std::string& format, std::string_view where);

// What is enforced for the keyword `pattern`: that expression, but for pydantic's of a Decimal.
std::string enforced_pattern(const std::string& pattern);

}  // namespace braid::grammar
