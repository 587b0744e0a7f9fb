// Lines of at most some width, as Python's textwrap breaks them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace braid::text::jinja {

// Of one line of text; empty for an empty one. Widths are in code points and at least 1.
std::vector<std::string> wrapped(const std::string& line, int64_t width, bool break_long_words, bool break_on_hyphens);

}  // namespace braid::text::jinja
