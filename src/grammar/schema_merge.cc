#include "grammar/schema_merge.h"

#include <algorithm>
#include <utility>

#include "grammar/schema_check.h"
#include "io/ordered_json.h"
#include "io/schema_types.h"
#include "sys/error.h"

namespace braid::grammar {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kAlternativesMax = 256;
constexpr int kMergesMax = 1000, kReferencesMax = 64;

Json all_of(const Json& a, const Json& b) {
  if (a == true) return b;
  if (b == true || a == b) return a;
  return {{"allOf", Json::array({a, b})}};
}

Json types_of(const Json& type) { return type.is_array() ? type : Json::array({type}); }

// "number" contains "integer".
Json common_types(const Json& a, const Json& b) {
  Json out = Json::array();
  const Json first = types_of(a), second = types_of(b);
  const auto has = [](const Json& list, const char* name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  for (const Json& type : first) {
    if (std::find(second.begin(), second.end(), type) != second.end() || (type == "integer" && has(second, "number")))
      out.push_back(type);
    else if (type == "number" && has(second, "integer"))
      out.push_back("integer");
  }
  return out;
}

// `properties` of both, and what additionalProperties of one says of those that only the other has.
void merge_objects(Json& out, const Json& a, const Json& b) {
  const Json none = Json::object();
  const auto part = [&](const Json& s, const char* key, const Json& otherwise) {
    return s.contains(key) ? s[key] : otherwise;
  };
  const Json first = part(a, "properties", none), second = part(b, "properties", none);
  const Json further_a = part(a, "additionalProperties", true), further_b = part(b, "additionalProperties", true);
  Json properties = Json::object();
  for (const auto& [name, schema] : first.items())
    properties[name] = all_of(schema, second.contains(name) ? second[name] : further_b);
  for (const auto& [name, schema] : second.items()) {
    if (!first.contains(name)) properties[name] = all_of(schema, further_a);
  }
  if (a.contains("properties") || b.contains("properties")) out["properties"] = std::move(properties);
  if (a.contains("additionalProperties") || b.contains("additionalProperties"))
    out["additionalProperties"] = all_of(further_a, further_b);
}

}  // namespace

bool same_value(const Json& a, const Json& b) { return nlohmann::json(a) == nlohmann::json(b); }

const Json& SchemaMerger::target(const std::string& reference) const {
  const Json* found = io::schema_at(root_, reference);
  if (!found)
    fail(where_, {.what = "a $ref leads nowhere",
                  .got = printable(reference, 80),
                  .expected = "# and a JSON pointer into the schema"});
  return *found;
}

Json SchemaMerger::merged(const Json& a, const Json& b) {
  if (++merges_ > kMergesMax) fail(where_, {.what = "the schema combines too many others"});
  if (a == false || b == false) return false;
  if (a == true) return b;
  if (b == true) return a;
  Json out = a;
  for (const auto& [key, value] : b.items()) {
    if (is_annotation(key) || key == "properties" || key == "additionalProperties") continue;
    if (!a.contains(key)) {
      out[key] = value;
    } else if (key == "type") {
      out[key] = common_types(a[key], value);
    } else if (key == "required") {
      for (const Json& name : value) out[key].push_back(name);
    } else if (key == "items" || key == "propertyNames") {
      out[key] = all_of(a[key], value);
    } else if (key.starts_with("min") || key == "exclusiveMinimum") {
      out[key] = std::max(a[key], value);
    } else if (key.starts_with("max") || key == "exclusiveMaximum") {
      out[key] = std::min(a[key], value);
    } else if (key == "enum") {
      out[key] = Json::array();
      for (const Json& one : a[key]) {
        const auto same = [&](const Json& v) { return same_value(v, one); };
        if (std::ranges::any_of(value, same)) out[key].push_back(one);
      }
    } else if (!same_value(a[key], value)) {
      fail(where_, {.what = fmt::format("two values of the keyword \"{}\" are combined, which is not supported",
                                        printable(key, 40)),
                    .got = printable(io::dumped(a[key]), 60) + " and " + printable(io::dumped(value), 60)});
    }
  }
  merge_objects(out, a, b);
  return out;
}

// patternProperties of one pattern, which all keys match then: propertyNames and additionalProperties say the same.
// Keys that do not match would be valid where additionalProperties is not false, but are not written.
void SchemaMerger::name_pattern(Json& schema) const {
  const auto at = schema.find("patternProperties");
  if (at == schema.end()) return;
  const Json patterns = *at;
  schema.erase("patternProperties");
  if (patterns.empty()) return;
  const auto refuse = [&](const char* why) {
    fail(where_, {.what = fmt::format("the keyword \"patternProperties\" {} is not supported", why)});
  };
  if (patterns.size() > 1) refuse("with more than one pattern");
  for (const char* other : {"properties", "required"}) {
    if (schema.contains(other) && !schema[other].empty()) refuse("beside properties");
  }
  if (schema.contains("additionalProperties") && schema["additionalProperties"] != false)
    refuse("beside additionalProperties that are not false");
  const Json name = {{"type", "string"}, {"pattern", patterns.begin().key()}};
  schema["propertyNames"] = schema.contains("propertyNames") ? all_of(schema["propertyNames"], name) : name;
  schema["additionalProperties"] = patterns.begin().value();
}

std::vector<Json> SchemaMerger::alternatives(const Json& schema, int depth) {
  if (depth > kReferencesMax) fail(where_, {.what = "a schema refers to itself without a value in between"});
  if (!schema.is_object()) return {schema};
  Json base = Json::object();
  std::vector<std::vector<Json>> factors;
  for (const auto& [key, value] : schema.items()) {
    if (key == "$ref") {
      factors.push_back(alternatives(target(value), depth + 1));
    } else if (key == "allOf") {
      for (const Json& one : value) factors.push_back(alternatives(one, depth + 1));
    } else if (key == "anyOf" || key == "oneOf") {
      std::vector<Json> ways;
      for (const Json& one : value) {
        for (Json& way : alternatives(one, depth + 1)) ways.push_back(std::move(way));
      }
      factors.push_back(std::move(ways));
    } else if (!is_annotation(key)) {
      base[key] = value;
    }
  }
  name_pattern(base);
  std::vector<Json> out{std::move(base)};
  for (const std::vector<Json>& factor : factors) {
    if (out.size() * factor.size() > kAlternativesMax) fail(where_, {.what = "the schema combines too many others"});
    std::vector<Json> product;
    for (const Json& a : out) {
      for (const Json& b : factor) product.push_back(merged(a, b));
    }
    out = std::move(product);
  }
  return out;
}

}  // namespace braid::grammar
