// What operators, dots and brackets do to values, as in Python.
#pragma once
#include <string_view>

#include "text/jinja_value.h"

namespace braid::text::jinja {

inline constexpr const char* kGroup = "group";  // label of a tuple of groupby, whose parts have names too

Value binary(std::string_view op, const Value& a, const Value& b);  // + - * / // % **
Value negate(const Value& v);
Value plus(const Value& v);
bool contains(const Value& container, const Value& needle);
bool compare(std::string_view op, const Value& a, const Value& b);  // == != < <= > >= in, not in

Value get_attribute(const Value& object, const Value& name);                              // method first, then key
Value get_item(const Value& object, const Value& key);                                    // key first, then method
Value slice(const Value& object, const Value& from, const Value& to, const Value& step);  // missing: left out
Value get_path(const Value& object, const Value& path, const Value& fallback);            // "a.b.0", or an index

int64_t checked_size(int64_t count, int64_t each);  // bytes of a result about to be made; type error when too large

}  // namespace braid::text::jinja
