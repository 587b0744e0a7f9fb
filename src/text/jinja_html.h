// Text of HTML: what striptags of markupsafe 3.0.4 leaves of it.
#pragma once
#include <string>
#include <string_view>

namespace braid::text::jinja {

// References become characters, as html.unescape reads them: numbers, and the names of HTML 4. Of the names that came
// with HTML 5 only those in capitals are known.
std::string unescape_html(std::string_view s);

// Without tags and comments, whitespace collapsed, unescaped. An unclosed tag stays.
std::string strip_tags(const std::string& s);

}  // namespace braid::text::jinja
