#include "grammar/schema_merge.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "grammar/exact_numbers.h"
#include "grammar/schema_check.h"
#include "grammar/schema_values.h"
#include "io/ordered_json.h"
#include "io/schema_types.h"
#include "sys/error.h"

namespace braid::grammar {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kAlternativesMax = 256;
constexpr int kMergesMax = 1000, kReferencesMax = 64;
constexpr int64_t kCopiedMax = 500'000;                     // values
constexpr const char* kNamedPattern = "patternProperties";  // marks what was made of them

bool is_all_of(const Json& s) { return s.is_object() && s.size() == 1 && s.contains("allOf"); }

Json all_of(const Json& a, const Json& b) {
  if (a == true) return b;
  if (b == true || a == b) return a;
  if (!is_all_of(a)) return {{"allOf", Json::array({a, b})}};
  Json out = a;  // flat, however many are combined
  out["allOf"].push_back(b);
  return out;
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

// `properties` of both, and what additionalProperties of one says of those that only the other has. A schema with
// `patterns` of keys, as there are in comparisons alone, may say something else of them.
void merge_objects(Json& out, const Json& b, bool patterns, bool patterns_b) {
  const Json any = true, none = Json::object();
  const Json *given = keyword_in(b, "properties"), *restricted = keyword_in(b, "additionalProperties");
  if (!given && !restricted) return;
  const Json& second = given ? *given : none;
  const Json further_a = patterns ? any : out.value("additionalProperties", any);
  const Json& further_b = restricted && !patterns_b ? *restricted : any;
  Json first = Json::object();
  if (const auto at = out.find("properties"); at != out.end()) first = std::move(*at);
  std::unordered_map<std::string_view, const Json*> others;
  for (const auto& item : second.items()) others[item.key()] = &item.value();
  std::unordered_set<std::string_view> known;
  for (auto& [name, schema] : first.get_ref<Json::object_t&>()) {
    known.insert(name);
    const auto other = others.find(name);
    const Json& also = other == others.end() ? further_b : *other->second;
    if (also != true) schema = all_of(schema, also);
  }
  std::vector<std::pair<std::string, Json>> added;
  for (const auto& item : second.items()) {
    if (!known.contains(item.key())) added.emplace_back(item.key(), all_of(item.value(), further_a));
  }
  auto& all = first.get_ref<Json::object_t&>();
  for (auto& [name, schema] : added) all.emplace_back(name, std::move(schema));  // new names: none is looked for
  if (given || out.contains("properties")) out["properties"] = std::move(first);
  if (restricted) out["additionalProperties"] = all_of(further_a, further_b);
}

// Each element has to satisfy what both say of its place: `items` is of those beyond a schema's own prefixItems.
void merge_arrays(Json& out, const Json& b) {
  if (!keyword_in(b, "items") && !keyword_in(b, "prefixItems")) return;
  const Json any = true, none = Json::array();
  const Json first = out.value("prefixItems", none), items = out.value("items", any);
  const Json *prefix = keyword_in(b, "prefixItems"), *further = keyword_in(b, "items");
  const Json &second = prefix ? *prefix : none, &items_b = further ? *further : any;
  Json both = Json::array();
  for (size_t i = 0; i < std::max(first.size(), second.size()); ++i)
    both.push_back(all_of(i < first.size() ? first[i] : items, i < second.size() ? second[i] : items_b));
  if (!both.empty()) out["prefixItems"] = std::move(both);
  if (further || out.contains("items")) out["items"] = all_of(items, items_b);
}

}  // namespace

const Json& SchemaMerger::target(const std::string& reference) const {
  const Json* found = io::schema_at(root_, reference);
  if (!found)
    fail(where_, {.what = "a $ref leads nowhere",
                  .got = printable(reference, 80),
                  .expected = "# and a JSON pointer into the schema"});
  return *found;
}

// Bounds what a small schema may have copied: its size times the number of its alternatives.
void SchemaMerger::charge(const Json& copied) {
  copied_ += count_values(copied);
  if (copied_ > kCopiedMax) fail(where_, {.what = "the schema combines too many others"});
}

Json SchemaMerger::merged(Json a, const Json& b) {
  if (++merges_ > kMergesMax) fail(where_, {.what = "the schema combines too many others"});
  charge(b);
  if (a == false || b == false) return false;
  if (a == true) return b;
  if (b == true) return a;
  Json out = std::move(a);
  const bool patterns = keyword_in(out, "patternProperties") != nullptr,
             patterns_b = keyword_in(b, "patternProperties") != nullptr;
  for (const auto& [key, value] : b.items()) {
    if (is_annotation(key) || key == "properties" || key == "additionalProperties" || key == "items" ||
        key == "prefixItems")
      continue;
    if (!out.contains(key)) {
      out[key] = value;
      continue;
    }
    Json& here = out[key];
    if (key == "type") {
      here = common_types(here, value);
    } else if (key == "required") {
      for (const Json& name : value) here.push_back(name);
    } else if (key == "propertyNames") {
      if (here != value && is_named_pattern(here) && is_named_pattern(value))
        fail(where_, {.what = "two values of the keyword \"patternProperties\" are combined, which is not supported"});
      here = all_of(here, value);
    } else if (key == "patternProperties") {
      continue;  // compared by their presence
    } else if (key.starts_with("min") || key == "exclusiveMinimum") {
      if (compare_numbers(value, here) > 0) here = value;
    } else if (key.starts_with("max") || key == "exclusiveMaximum") {
      if (compare_numbers(value, here) < 0) here = value;
    } else if (key == "uniqueItems") {
      here = here == true || value == true;
    } else if (key == "enum") {
      const ValueSet others = value_set(value);
      Json common = Json::array();
      for (const Json& one : here) {
        if (others.contains(canonical(one))) common.push_back(one);
      }
      here = std::move(common);
    } else if (!same_value(here, value)) {
      if (key == "const") return false;
      fail(where_, {.what = fmt::format("two values of the keyword \"{}\" are combined, which is not supported",
                                        printable(key, 40)),
                    .got = printable(io::dumped(here), 60) + " and " + printable(io::dumped(value), 60)});
    }
  }
  merge_objects(out, b, patterns, patterns_b);
  merge_arrays(out, b);
  return out;
}

bool SchemaMerger::is_named_pattern(const Json& names) {
  if (is_all_of(names)) return std::ranges::any_of(names["allOf"], is_named_pattern);
  return names.is_object() && names.value("$comment", Json()) == kNamedPattern;
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
  const auto is_object = [](const Json& v) { return v.is_object(); };
  const Json *listed = keyword_in(schema, "enum"), *one = keyword_in(schema, "const");
  if ((listed && std::ranges::any_of(*listed, is_object)) || (one && is_object(*one)))
    refuse("beside an enum or const of objects");
  if (schema.contains("additionalProperties") && schema["additionalProperties"] != false)
    refuse("beside additionalProperties that are not false");
  if (const Json* names = keyword_in(schema, "propertyNames");
      names && names->is_object() && names->contains("pattern"))
    refuse("beside propertyNames with a pattern");
  const Json name = {{"type", "string"}, {"pattern", patterns.begin().key()}, {"$comment", kNamedPattern}};
  schema["propertyNames"] = schema.contains("propertyNames") ? all_of(schema["propertyNames"], name) : name;
  schema["additionalProperties"] = patterns.begin().value();
}

// Each of `all` with each of `factor`.
std::vector<Json> SchemaMerger::product(std::vector<Json> all, const std::vector<Json>& factor) {
  if (all.size() * factor.size() > kAlternativesMax) fail(where_, {.what = "the schema combines too many others"});
  std::vector<Json> out;
  if (factor.empty()) return out;
  for (Json& a : all) {
    for (size_t i = 0; i + 1 < factor.size(); ++i) {
      charge(a);
      out.push_back(merged(a, factor[i]));
    }
    out.push_back(merged(std::move(a), factor.back()));
  }
  return out;
}

std::vector<Json> SchemaMerger::alternatives(const Json& schema, int depth) {
  if (depth > kReferencesMax) fail(where_, {.what = "a schema refers to itself without a value in between"});
  if (!schema.is_object()) return {schema};
  Json base = Json::object();
  std::vector<std::vector<Json>> factors;
  bool one_of = false;
  for (const auto& [key, value] : schema.items()) {
    if (key == "$ref") {
      factors.push_back(alternatives(target(value), depth + 1));
    } else if (key == "allOf") {
      for (const Json& one : value) factors.push_back(alternatives(one, depth + 1));
    } else if (key == "oneOf" && !compares_) {
      one_of = true;
    } else if (key == "anyOf" || key == "oneOf") {
      std::vector<Json> ways;
      for (const Json& one : value) {
        for (Json& way : alternatives(one, depth + 1)) ways.push_back(std::move(way));
      }
      factors.push_back(std::move(ways));
    } else if (!is_annotation(key)) {
      charge(value);
      base[key] = value;
    }
  }
  if (const Json* keys = keyword_in(base, "patternProperties"); keys && (!compares_ || keys->empty()))
    name_pattern(base);
  std::vector<Json> out{std::move(base)};
  for (const std::vector<Json>& factor : factors) out = product(std::move(out), factor);
  return one_of ? one_of_them(out, schema, depth) : out;
}

// Alternatives of which one alone may hold, each beside all else that the schema says: `others`. What is written of
// them may be less than what they allow, which is compared.
std::vector<Json> SchemaMerger::one_of_them(const std::vector<Json>& others, const Json& schema, int depth) {
  Json rest = Json::object();
  for (const auto& [key, value] : schema.items()) {
    if (key == "oneOf" || is_annotation(key)) continue;
    charge(value);
    rest[key] = value;
  }
  const WaysOf of = ways_of();
  std::vector<Ways> groups, compared;
  size_t count = 0;
  for (const Json& one : schema["oneOf"]) {
    for (const Json& way : others) charge(way);
    groups.push_back(product(others, alternatives(one, depth + 1)));
    count += groups.back().size();
    if (count > kAlternativesMax) fail(where_, {.what = "the schema combines too many others"});
    charge(rest);
    const Json whole = {{"allOf", Json::array({rest, one})}};
    compared.push_back(of(whole).value_or(groups.back()));
  }
  const std::vector<Json> further = exclusions(compared, of, text_steps_, where_);
  std::vector<Json> out;
  for (size_t i = 0; i < groups.size(); ++i) {
    for (Json& way : groups[i]) out.push_back(further[i] == true ? std::move(way) : merged(std::move(way), further[i]));
  }
  return out;
}

// For comparisons, whose limits are their own: what they cannot tell does not fail the schema.
WaysOf SchemaMerger::ways_of() {
  if (!probe_) {
    probe_ = std::make_unique<SchemaMerger>(root_, where_);
    probe_->compares_ = true;
  }
  return [this](const Json& schema) -> std::optional<Ways> {
    try {
      return probe_->alternatives(schema);
    } catch (const Error&) {  // too much, or keywords that cannot be combined
      return std::nullopt;
    }
  };
}

Json SchemaMerger::exclusive(const Json& list) {
  const WaysOf of = ways_of();
  std::vector<Ways> groups;
  for (const Json& one : list) {
    std::optional<Ways> ways = of(one);
    if (!ways) return nullptr;
    groups.push_back(*std::move(ways));
  }
  const std::vector<Json> further = exclusions(groups, of, text_steps_, where_);
  if (std::ranges::all_of(further, [](const Json& s) { return s == true; })) return nullptr;
  Json out = Json::array();
  for (size_t i = 0; i < further.size(); ++i) {
    charge(list[i]);
    out.push_back(all_of(list[i], further[i]));
  }
  return out;
}

}  // namespace braid::grammar
