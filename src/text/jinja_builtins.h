// Filters, tests, methods and global functions: four tables of the same layout. A row names its parameters as Python
// does, so that templates may pass them by name: `?` may be left out, `*` takes any further positional arguments, `**`
// any further named ones. The first parameter is the value before the bar, the dot or the `is`.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace braid::text::jinja {

struct Args {
  Interpreter& in;
  Values at;  // by the row's parameters; `missing` if not given
  Values rest{};
  std::vector<std::pair<std::string, Value>> named{};

  const Value& operator[](size_t i) const { return at[i]; }
  bool given(size_t i) const { return at[i].given() && !at[i].is(Kind::none); }  // None counts as not given
  const std::string& text(size_t i) const;                                       // type error for anything but a str
  std::string printed(size_t i) const;                                           // str() of anything
  int64_t whole(size_t i, int64_t fallback) const;
  bool flag(size_t i, bool fallback) const { return at[i].given() ? truth(at[i]) : fallback; }
};

struct Builtin {
  std::string_view name;
  std::string_view params;
  Value (*run)(Args&);
};

const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
const Builtin* find_global(std::string_view name);
const Builtin* find_method(const Value& object, std::string_view name);
bool is_mutator(const Value& object, std::string_view name);  // a method that the sandbox hides

Value run_builtin(const Builtin& builtin, Interpreter& in, CallArgs args);
Value as_value(const Builtin& builtin);                     // the function itself, `{% set f = range %}`
Value as_value(const Builtin& builtin, const Value& self);  // bound, `x.upper` without a call

// A linear search: tables are short, and filters and tests are looked up once, when parsing.
template <size_t N>
const Builtin* find_row(const Builtin (&rows)[N], std::string_view name) {
  for (const Builtin& row : rows) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

}  // namespace braid::text::jinja
