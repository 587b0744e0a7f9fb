// What the template tests share: a fixed time, the variables of the tables, and a template rendered at once.
#pragma once
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>

#include "text/template.h"

namespace braid::text {

inline std::tm noon() {  // 2026-01-15 12:00:00, a Thursday
  std::tm t{};
  t.tm_year = 126;
  t.tm_mday = 15;
  t.tm_hour = 12;
  timegm(&t);
  return t;
}

inline std::string render(const std::string& source,
                          const nlohmann::ordered_json& variables = nlohmann::ordered_json::object(),
                          const Limits& limits = {}) {
  return ChatTemplate::parse(source, "test").render(variables, noon(), limits);
}

struct Rendered {
  const char *source, *text;
};

// The variables that the tables of jinja_test.cc and jinja_expressions_test.cc were rendered with.
inline nlohmann::ordered_json table_variables() {
  return nlohmann::ordered_json::parse(
      R"({"s": "Hello World", "u": "é漢🙂ß", "e": "", "i": 7, "neg": -3, "f": 2.5, "big": 1e22,
  "t": true, "n": null, "l": [3, 1, 2], "w": ["b", "A", "c"], "d": {"b": 1, "a": [1, 2], "items": 5},
  "m": [{"role": "user", "content": "hi", "n": 2}, {"role": "assistant", "content": "yo", "n": 1},
        {"role": "user", "content": null}],
  "nest": {"x": {"y": [10, 20, {"z": "deep"}]}}, "html": "<a href='x'>&\"</a>"})");
}

}  // namespace braid::text
