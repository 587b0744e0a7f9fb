#include "grammar/schema_check.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <unordered_set>
#include <utility>
#include <vector>

#include "io/ordered_json.h"
#include "io/schema_types.h"
#include "sys/error.h"

namespace braid::grammar {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kValuesMax = 10'000;
constexpr int kSchemaDepthMax = 64;
constexpr size_t kPropertiesMax = 1000;  // fewer than the alternatives that an automaton follows

enum class Kind { annotation, schema, schemas, schema_map, count, number, text, names, types, list, anything, flag };
struct Keyword {
  std::string_view name;
  Kind kind;
};
constexpr Keyword kKeywords[] = {{"type", Kind::types},
                                 {"properties", Kind::schema_map},
                                 {"required", Kind::names},
                                 {"additionalProperties", Kind::schema},
                                 {"patternProperties", Kind::schema_map},
                                 {"propertyNames", Kind::schema},
                                 {"minProperties", Kind::count},
                                 {"maxProperties", Kind::count},
                                 {"items", Kind::schema},
                                 {"prefixItems", Kind::schemas},
                                 {"minItems", Kind::count},
                                 {"maxItems", Kind::count},
                                 {"uniqueItems", Kind::flag},
                                 {"enum", Kind::list},
                                 {"const", Kind::anything},
                                 {"anyOf", Kind::schemas},
                                 {"oneOf", Kind::schemas},
                                 {"allOf", Kind::schemas},
                                 {"$ref", Kind::text},
                                 {"$defs", Kind::schema_map},
                                 {"definitions", Kind::schema_map},
                                 {"minLength", Kind::count},
                                 {"maxLength", Kind::count},
                                 {"pattern", Kind::text},
                                 {"format", Kind::text},
                                 {"minimum", Kind::number},
                                 {"maximum", Kind::number},
                                 {"exclusiveMinimum", Kind::number},
                                 {"exclusiveMaximum", Kind::number},
                                 {"multipleOf", Kind::number},
                                 {"title", Kind::annotation},
                                 {"description", Kind::annotation},
                                 {"default", Kind::annotation},
                                 {"examples", Kind::annotation},
                                 {"example", Kind::annotation},
                                 {"discriminator", Kind::annotation},
                                 {"deprecated", Kind::annotation},
                                 {"readOnly", Kind::annotation},
                                 {"writeOnly", Kind::annotation},
                                 {"contentMediaType", Kind::annotation},
                                 {"contentEncoding", Kind::annotation},
                                 {"contentSchema", Kind::annotation},
                                 {"$schema", Kind::annotation},
                                 {"$id", Kind::annotation},
                                 {"$comment", Kind::annotation}};

constexpr std::string_view kTypes[] = {"string", "number", "integer", "boolean", "null", "object", "array"};

const Keyword* keyword_of(std::string_view name) {
  const auto at =
      std::find_if(std::begin(kKeywords), std::end(kKeywords), [&](const Keyword& k) { return k.name == name; });
  return at == std::end(kKeywords) ? nullptr : at;
}

bool is_type(const Json& value) {
  return value.is_string() &&
         std::find(std::begin(kTypes), std::end(kTypes), value.get_ref<const std::string&>()) != std::end(kTypes);
}

class Checker {
 public:
  explicit Checker(std::string_view where) : where_(where) {}

  // A $ref may lead to what no keyword does: into an annotation, an enum, or what is ignored.
  void whole(const Json& root) {
    schema(root, "", 0);
    while (!references_.empty()) {
      const std::string reference = std::move(references_.back());
      references_.pop_back();
      const Json* target = io::schema_at(root, reference);  // null: the compiler refuses it where it is needed
      if (target && !seen_.contains(target)) schema(*target, reference.substr(1), 0);
    }
  }

 private:
  void schema(const Json& s, const std::string& at, int depth) {
    count(depth, at);
    seen_.insert(&s);
    if (s.is_boolean()) return;
    if (!s.is_object()) refuse("a schema is neither an object nor true or false", at, s, "an object");
    for (const auto& [name, value] : s.items()) {
      const std::string inside = at + pointer_step(name);
      const Keyword* known = keyword_of(name);
      if (!known) {
        if (name.starts_with("x-")) continue;
        fail(where_,
             {.what = fmt::format("the keyword \"{}\" at {} is not supported", printable(name, 60), printable(inside)),
              .hint = "a schema without it"});
      }
      keyword(*known, value, inside, depth);
    }
  }

  [[noreturn]] void refuse(std::string_view what, const std::string& at, const Json& value,
                           std::string expected) const {
    fail(where_, {.what = fmt::format("{} at {}", what, at.empty() ? "the root" : printable(at)),
                  .got = printable(io::dumped(value), 60),
                  .expected = std::move(expected)});
  }
  void count(int depth, const std::string& at) {
    if (++values_ > kValuesMax) fail(where_, {.what = fmt::format("the schema has more than {} values", kValuesMax)});
    if (depth > kSchemaDepthMax)
      fail(where_, {.what = fmt::format("the schema nests deeper than {} at {}", kSchemaDepthMax, printable(at, 80))});
  }
  void count_all(const Json& value, const std::string& at, int depth) {
    count(depth, at);
    if (!value.is_structured()) return;
    for (const Json& one : value) count_all(one, at, depth + 1);
  }
  void keyword(const Keyword& k, const Json& value, const std::string& at, int depth) {
    switch (k.kind) {
      case Kind::annotation:
        return;
      case Kind::anything:
        return count_all(value, at, depth);
      case Kind::schema:
        return schema(value, at, depth + 1);
      case Kind::schemas:
        if (!value.is_array() || value.empty()) refuse("no list of schemas", at, value, "one or more schemas");
        for (size_t i = 0; i < value.size(); ++i) schema(value[i], at + pointer_step(std::to_string(i)), depth + 1);
        return;
      case Kind::schema_map:
        if (!value.is_object()) refuse("no object of schemas", at, value, "an object");
        if (k.name == "properties" && value.size() > kPropertiesMax)
          refuse("too many properties", at, value.size(), fmt::format("at most {}", kPropertiesMax));
        for (const auto& [name, one] : value.items()) schema(one, at + pointer_step(name), depth + 1);
        return;
      case Kind::count:
        if (!value.is_number() || value.get<double>() < 0 ||
            value.get<double>() != static_cast<double>(static_cast<int64_t>(std::min(value.get<double>(), 1e15))))
          refuse("no count", at, value, "a whole number from 0 to 1e15");
        return;
      case Kind::number:
        if (io::digits_of(value)) refuse("a number beyond 64 bits", at, value, "at most 18 digits");
        if (!value.is_number() || (k.name == "multipleOf" && value.get<double>() <= 0))
          refuse("no number that can be used", at, value, k.name == "multipleOf" ? "a number above 0" : "a number");
        return;
      case Kind::text:
        if (!value.is_string()) refuse("no text", at, value, "a string");
        if (const auto& text = value.get_ref<const std::string&>();
            k.name == "$ref" && references_known_.insert(text).second)
          references_.push_back(text);
        return;
      case Kind::names:
        if (!value.is_array() || !std::all_of(value.begin(), value.end(), [](const Json& v) { return v.is_string(); }))
          refuse("no list of names", at, value, "strings");
        for (size_t i = 0; i < value.size(); ++i) count(0, at);
        return;
      case Kind::types:
        if (!is_type(value) &&
            !(value.is_array() && !value.empty() && std::all_of(value.begin(), value.end(), is_type)))
          refuse("no such type", at, value, "string, number, integer, boolean, null, object, array, or a list of them");
        return;
      case Kind::list:
        if (!value.is_array() || value.empty()) refuse("no list of values", at, value, "one or more values");
        for (const Json& one : value) count_all(one, at, depth);
        return;
      case Kind::flag:
        if (!value.is_boolean()) refuse("neither true nor false", at, value, "true or false");
        return;
    }
  }

  std::string_view where_;
  int64_t values_ = 0;
  std::unordered_set<const Json*> seen_;
  std::set<std::string> references_known_;
  std::vector<std::string> references_;  // not followed yet
};

}  // namespace

std::string pointer_step(std::string_view key) {
  std::string out = "/";
  for (const char ch : key) {
    if (ch == '~')
      out += "~0";
    else if (ch == '/')
      out += "~1";
    else
      out += ch;
  }
  return out;
}

bool is_annotation(std::string_view keyword) {
  const Keyword* known = keyword_of(keyword);
  return !known || known->kind == Kind::annotation || keyword == "$defs" || keyword == "definitions";
}

void check_schema(const Json& schema, std::string_view where) { Checker(where).whole(schema); }

}  // namespace braid::grammar
