// Cuts a template into tokens. Whitespace control happens here: `-` strips, `+` keeps; otherwise the newline after a
// block tag is dropped (trim_blocks), and so is the indentation before one (lstrip_blocks).
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_value.h"

namespace braid::text::jinja {

struct Token {
  enum class Type { data, print_open, print_close, tag_open, tag_close, name, constant, op, end };
  Type type;
  std::string text;  // data, name or operator as written
  Value value;       // of a constant: string, integer or real
  int line;          // 1-based
};

// Thrown by lexer and parser.
struct SyntaxError {
  std::string text;
  int line;
};

std::vector<Token> tokenize(std::string_view source);

}  // namespace braid::text::jinja
