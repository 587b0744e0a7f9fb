// How values become text: Python's str() and repr(), json.dumps, the % operator and str.format.
#pragma once
#include <optional>
#include <string>

#include "text/jinja_value.h"

namespace braid::text::jinja {

std::string to_text(const Value& v);  // str(): what {{ v }} prints
std::string to_repr(const Value& v);  // repr(): how v prints inside a list
std::string real_text(double d);      // the shortest digits that read back, as Python prints a float
std::string escape_html(std::string_view text);

struct JsonStyle {
  std::optional<std::string> indent{};  // of one level; without it, all is on one line
  std::string between = ", ", colon = ": ";
  bool sort_keys = false, ascii = false;
};
std::string to_json(const Value& v, const JsonStyle& style);

// `format % values`: a tuple gives several values, a dict named ones.
std::string format_percent(const std::string& format, const Value& values);
// format.format(...): {}, {0}, {name}, {name.attribute[key]}, !r, and the usual specifications.
std::string format_braces(const std::string& format, const CallArgs& args);

}  // namespace braid::text::jinja
