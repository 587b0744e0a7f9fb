// Tokens to a tree. Recursion is bounded, so no template can exhaust the stack here, later or when the tree is freed.
#pragma once
#include "text/jinja_ast.h"
#include "text/jinja_lexer.h"

namespace braid::text::jinja {

Body parse(std::string_view source);  // throws SyntaxError

}  // namespace braid::text::jinja
