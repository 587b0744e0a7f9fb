#include "grammar/schema_values.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "grammar/exact_numbers.h"
#include "grammar/regex.h"
#include "grammar/schema_check.h"
#include "grammar/string_formats.h"
#include "io/ordered_json.h"
#include "sys/error.h"
#include "sys/utf8.h"

namespace braid::grammar {
namespace {

using Json = nlohmann::ordered_json;

Holds known(bool holds) { return holds ? Holds::yes : Holds::no; }

int64_t characters_of(const std::string& text) {
  int64_t count = 0;
  for (size_t i = 0; i < text.size(); ++count) i += sys::utf8_step(text, i).length;
  return count;
}

Holds holds_for_number(const Json& value, const std::string& keyword, const Json& operand) {
  if (keyword == "multipleOf") return known(is_multiple(value, operand));
  const int order = compare_numbers(value, operand);
  if (keyword == "minimum") return known(order >= 0);
  if (keyword == "maximum") return known(order <= 0);
  return known(keyword == "exclusiveMinimum" ? order > 0 : order < 0);
}

// What is inside them is not looked at.
Holds holds_for_size(const Json& value, const std::string& keyword, const Json& operand) {
  const auto size = static_cast<double>(value.size());
  if (keyword == "minItems" || keyword == "minProperties") return known(size >= operand.get<double>());
  if (keyword == "maxItems" || keyword == "maxProperties") return known(size <= operand.get<double>());
  if (keyword == "required")
    return known(
        std::ranges::all_of(operand, [&](const Json& name) { return value.contains(name.get<std::string>()); }));
  return Holds::unknown;
}

// Those that an expression describes, of the strings. The work is bounded, and values it does not reach are not dropped
// in silence.
void keep_texts(std::vector<Json>& values, const Regex& regex, std::string_view where) {
  int64_t steps = 4'000'000;
  std::erase_if(values,
                [&](const Json& v) { return v.is_string() && !regex.matches(v.get_ref<const std::string&>(), steps); });
  if (steps <= 0)
    fail(where, {.what = "the pattern is too complex for the strings of the enum",
                 .expected = "fewer or shorter ones",
                 .hint = "leaving the pattern out"});
}

bool is_one_of(std::string_view keyword, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, keyword) != names.end();
}

}  // namespace

const Json* keyword_in(const Json& schema, const char* keyword) {
  const auto at = schema.find(keyword);
  return at == schema.end() ? nullptr : &*at;
}

bool same_value(const Json& a, const Json& b) { return canonical(a) == canonical(b); }

ValueSet value_set(const Json& list) {
  ValueSet out;
  for (const Json& value : list) out.insert(canonical(value));
  return out;
}

int64_t count_values(const Json& value) {
  int64_t count = 1;
  if (value.is_structured()) {
    for (const Json& one : value) count += count_values(one);
  }
  return count;
}

bool has_type(const Json& value, const std::string& type) {
  if (type == "number") return is_number(value);
  if (type == "integer") return is_number(value) && is_whole(value);
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  return type == "array" ? value.is_array() : value.is_object();
}

Holds holds(const Json& value, const std::string& keyword, const Json& operand) {
  if (is_annotation(keyword)) return Holds::yes;
  if (keyword == "const") return known(same_value(value, operand));
  if (keyword == "enum")
    return known(std::ranges::any_of(operand, [&](const Json& v) { return same_value(v, value); }));
  if (keyword == "type") {
    if (operand.is_string()) return known(has_type(value, operand));
    return known(std::ranges::any_of(operand, [&](const Json& type) { return has_type(value, type); }));
  }
  if (keyword == "minLength" || keyword == "maxLength") {
    if (!value.is_string()) return Holds::yes;
    const auto length = static_cast<double>(characters_of(value));
    return known(keyword == "minLength" ? length >= operand.get<double>() : length <= operand.get<double>());
  }
  if (keyword == "pattern" || keyword == "format") return value.is_string() ? Holds::unknown : Holds::yes;
  if (is_one_of(keyword, {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})) {
    return is_number(value) ? holds_for_number(value, keyword, operand) : Holds::yes;
  }
  const bool of_arrays = is_one_of(keyword, {"items", "prefixItems", "minItems", "maxItems", "uniqueItems"});
  return (of_arrays ? value.is_array() : value.is_object()) ? holds_for_size(value, keyword, operand) : Holds::yes;
}

std::vector<Json> listed_values(const Json& schema, std::string_view where) {
  const auto list = schema.find("enum"), one = schema.find("const");
  std::vector<Json> values;
  if (one != schema.end())
    values = {*one};
  else
    values.assign(list->begin(), list->end());
  for (const auto& item : schema.items()) {
    const std::string& key = item.key();
    const Json& operand = item.value();
    if (key == (one != schema.end() ? "const" : "enum")) continue;
    if (key == "pattern") {
      keep_texts(values, Regex::parse_search(enforced_pattern(operand), where), where);
      continue;
    }
    if (key == "format") {
      if (const std::string pattern = format_pattern(operand, where); !pattern.empty())
        keep_texts(values, Regex::parse(pattern, where), where);
      continue;
    }
    std::erase_if(values, [&](const Json& v) {
      const Holds held = holds(v, key, operand);
      if (held == Holds::unknown)
        fail(where, {.what = fmt::format("the keyword \"{}\" beside an enum or const of {}s is not supported",
                                         printable(key, 40), v.is_array() ? "array" : "object")});
      return held == Holds::no;
    });
  }
  return values;
}

}  // namespace braid::grammar
