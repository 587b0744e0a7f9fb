#include "grammar/one_of.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "grammar/schema_values.h"
#include "sys/error.h"

namespace braid::grammar {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kInsideMax = 3;             // properties inside properties that are compared
constexpr int64_t kStepsMax = 1'000'000;  // of comparisons: beyond, nothing is known

// Of the texts written for one schema: none satisfies another schema, some may, some do.
enum class Overlap { none, unknown, some };

Overlap worse(Overlap a, Overlap b) { return std::max(a, b); }

bool has_any(const Json& schema, std::initializer_list<const char*> keys) {
  return std::any_of(keys.begin(), keys.end(), [&](const char* key) { return keyword_in(schema, key); });
}
bool is_listed(const Json& schema) { return has_any(schema, {"enum", "const"}); }

constexpr const char* kJsonTypes[] = {"string", "null", "boolean", "number", "array", "object"};

bool allows(const Json& schema, const std::string& type) {
  const Json* given = keyword_in(schema, "type");
  if (!given) return true;
  const auto is = [&](const Json& one) { return one == type || (type == "number" && one == "integer"); };
  return given->is_array() ? std::ranges::any_of(*given, is) : is(*given);
}
bool only_integers(const Json& schema) {
  const Json* given = keyword_in(schema, "type");
  const auto is_number = [](const Json& one) { return one == "number"; };
  return given && !(given->is_array() ? std::ranges::any_of(*given, is_number) : is_number(*given));
}
// Without a type its keywords tell which are written (json_schema.cc).
bool writes(const Json& schema, const std::string& type) {
  if (keyword_in(schema, "type")) return allows(schema, type);
  const bool object = has_any(schema, {"properties", "required", "additionalProperties", "propertyNames",
                                       "minProperties", "maxProperties"}),
             array = has_any(schema, {"items", "prefixItems", "minItems", "maxItems", "uniqueItems"}),
             string = has_any(schema, {"minLength", "maxLength", "pattern", "format"}),
             number = has_any(schema, {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"});
  if (!object && !array && !string && !number) return true;
  return type == "object" ? object : type == "array" ? array : type == "string" ? string : type == "number" && number;
}

double number_of(const Json& schema, const char* key, double otherwise) {
  const Json* value = keyword_in(schema, key);
  return value ? value->get<double>() : otherwise;
}
constexpr double kInfinite = std::numeric_limits<double>::infinity();

Overlap of_counts(const Json& a, const Json& b, const char* least, const char* most) {
  const double low = std::max(number_of(a, least, 0), number_of(b, least, 0)),
               high = std::min(number_of(a, most, kInfinite), number_of(b, most, kInfinite));
  return low > high ? Overlap::none : Overlap::some;
}

Overlap of_numbers(const Json& a, const Json& b) {
  double low = -kInfinite, high = kInfinite;
  for (const Json* s : {&a, &b}) {
    low = std::max({low, number_of(*s, "minimum", low), number_of(*s, "exclusiveMinimum", low)});
    high = std::min({high, number_of(*s, "maximum", high), number_of(*s, "exclusiveMaximum", high)});
  }
  bool open = false;
  for (const Json* s : {&a, &b})
    open = open || number_of(*s, "exclusiveMinimum", -kInfinite) == low ||
           number_of(*s, "exclusiveMaximum", kInfinite) == high;
  if (only_integers(a) || only_integers(b)) {
    for (const Json* s : {&a, &b}) {
      low = std::max({low, std::ceil(low), std::floor(number_of(*s, "exclusiveMinimum", -kInfinite)) + 1});
      high = std::min({high, std::floor(high), std::ceil(number_of(*s, "exclusiveMaximum", kInfinite)) - 1});
    }
    open = false;
  }
  if (low > high || (low == high && open)) return Overlap::none;
  return keyword_in(a, "multipleOf") || keyword_in(b, "multipleOf") ? Overlap::unknown : Overlap::some;
}

Overlap of_strings(const Json& a, const Json& b) {
  if (of_counts(a, b, "minLength", "maxLength") == Overlap::none) return Overlap::none;
  // Expressions are not compared, nor their lengths; a format may be one that validators do not look at.
  const auto described = [](const Json& s) { return has_any(s, {"pattern", "format"}); };
  const auto limited = [&](const Json& s) { return described(s) || has_any(s, {"minLength", "maxLength"}); };
  return (described(a) && limited(b)) || (described(b) && limited(a)) ? Overlap::unknown : Overlap::some;
}

class Comparison {
 public:
  Comparison(const WaysOf& ways_of, std::string_view where) : ways_of_(ways_of), where_(where) {}

  // Of what `a` writes, under `b`. `repair`, where it is asked for: what to add to `a` for none.
  Overlap of(const Json& a, const Json& b, int depth, Json* repair = nullptr) {
    if (a == false || b == false) return Overlap::none;
    if (depth > kInsideMax || !spend(a) || !spend(b)) return Overlap::unknown;
    const Json none = Json::object(), &first = a == true ? none : a, &second = b == true ? none : b;
    if (is_listed(first)) return of_listed(first, second);
    if (is_listed(second)) return of_listed(second, first);
    Overlap out = Overlap::none;
    for (const std::string type : kJsonTypes) {
      if (!writes(first, type) || !allows(second, type)) continue;
      if (type == "null" || type == "boolean")
        out = Overlap::some;
      else if (type == "string")
        out = worse(out, of_strings(first, second));
      else if (type == "number")
        out = worse(out, of_numbers(first, second));
      else if (type == "array")
        out = worse(out, of_arrays(first, second, depth, repair));
      else
        out = worse(out, of_objects(first, second, depth, repair));
    }
    return out;
  }

 private:
  bool spend(const Json& schema) {
    if (steps_ <= kStepsMax) steps_ += count_values(schema);
    return steps_ <= kStepsMax;
  }
  Overlap of_listed(const Json& listed, const Json& other) {
    Overlap out = Overlap::none;
    const ValueSet others = keyword_in(other, "enum") ? value_set(other["enum"]) : ValueSet{};
    for (const Json& v : listed_values(listed, where_)) {
      bool excluded = false, certain = true;
      for (const auto& [key, operand] : other.items()) {
        const Holds held = key != "enum" ? holds(v, key, operand) : others.contains(v) ? Holds::yes : Holds::no;
        excluded = excluded || held == Holds::no;
        certain = certain && held == Holds::yes;
      }
      if (!excluded) out = worse(out, certain ? Overlap::some : Overlap::unknown);
    }
    return out;
  }
  Overlap of_schemas(const Json& a, const Json& b, int depth) {
    if (a == true && b == true) return Overlap::some;
    const std::optional<Ways> first = ways_of_(a), second = ways_of_(b);
    if (!first || !second) return Overlap::unknown;
    Overlap out = Overlap::none;
    for (const Json& one : *first) {
      for (const Json& other : *second) out = worse(out, of(one, other, depth));
    }
    return out;
  }

  // An empty array satisfies both of what differs in its elements.
  Overlap of_arrays(const Json& a, const Json& b, int depth, Json* repair) {
    if (of_counts(a, b, "minItems", "maxItems") == Overlap::none) return Overlap::none;
    const Json any = true, *first = keyword_in(a, "items"), *second = keyword_in(b, "items");
    Overlap elements = Overlap::unknown;
    if (!has_any(a, {"prefixItems"}) && !has_any(b, {"prefixItems"}))
      elements = of_schemas(first ? *first : any, second ? *second : any, depth + 1);
    if (elements == Overlap::some)
      return has_any(a, {"uniqueItems"}) || has_any(b, {"uniqueItems"}) ? Overlap::unknown : Overlap::some;
    const bool may_be_empty = number_of(a, "minItems", 0) == 0 && number_of(b, "minItems", 0) == 0;
    if (may_be_empty && repair)
      (*repair)["minItems"] = 1;
    else if (may_be_empty)
      return Overlap::some;
    return elements;
  }

  struct Object {
    explicit Object(const Json& schema) {
      if (const Json* all = keyword_in(schema, "properties")) {
        for (const auto& [name, inside] : all->items()) properties[name] = &inside;
      }
      if (const Json* names = keyword_in(schema, "required")) {
        for (const Json& name : *names) required[name] = true;
      }
      const Json* additional = keyword_in(schema, "additionalProperties");
      closed = additional && *additional == false;
      writes_more = additional ? !closed : !keyword_in(schema, "properties");
    }
    std::map<std::string, const Json*> properties{};
    std::map<std::string, bool> required{};
    bool closed = false, writes_more = true;

    bool has(const std::string& name) const {
      const auto at = properties.find(name);
      return at != properties.end() && *at->second != false;
    }
    bool writes(const std::string& name) const { return has(name) || required.contains(name) || writes_more; }
    bool allows(const std::string& name) const { return has(name) || (!closed && !properties.contains(name)); }
  };
  Overlap of_objects(const Json& a, const Json& b, int depth, Json* repair) {
    const Object first(a), second(b);
    for (const auto& [name, unused] : second.required) {
      if (!first.writes(name)) return Overlap::none;
    }
    for (const auto& [name, unused] : first.required) {
      if (!second.allows(name)) return Overlap::none;
    }
    Overlap out = Overlap::some;
    std::string telling;  // tells them apart where it is written
    for (const auto& [name, inside] : first.properties) {
      const auto other = second.properties.find(name);
      if (other == second.properties.end()) continue;
      const Overlap here = of_schemas(*inside, *other->second, depth + 1);
      const bool written = first.required.contains(name) || second.required.contains(name);
      if (here == Overlap::none && written) return Overlap::none;
      if (here == Overlap::none && telling.empty() && *inside != false) telling = name;
      if (here == Overlap::unknown && written) out = Overlap::unknown;
    }
    if (has_any(a, {"propertyNames"}) || has_any(b, {"propertyNames"})) out = Overlap::unknown;
    if (!repair) return out;
    if (!telling.empty()) return (*repair)["required"].push_back(telling), Overlap::none;
    for (const auto& [name, unused] : second.required) {
      if (first.required.contains(name)) continue;
      (*repair)["properties"][name] = false;
      return Overlap::none;
    }
    return out;
  }

  const WaysOf& ways_of_;
  std::string_view where_;
  int64_t steps_ = 0;
};

void add(Json& all, const Json& repair) {
  if (all == true) all = Json::object();
  for (const auto& [key, value] : repair.items()) {
    if (key == "required")
      all[key].push_back(value[0]);
    else if (key == "properties")
      all[key].update(value);
    else
      all[key] = value;
  }
}

}  // namespace

std::vector<Json> exclusions(const std::vector<Ways>& alternatives, const WaysOf& ways_of, std::string_view where) {
  Comparison comparison(ways_of, where);
  std::vector<Json> out(alternatives.size(), true);
  for (size_t i = 0; i < alternatives.size(); ++i) {
    for (size_t j = 0; j < alternatives.size(); ++j) {
      if (i == j) continue;
      for (const Json& a : alternatives[i]) {
        for (const Json& b : alternatives[j]) {
          Json repair = Json::object();
          const Overlap overlap = comparison.of(a, b, 0, &repair);
          if (overlap == Overlap::some)
            fail(where, {.what = fmt::format("the alternatives {} and {} of a oneOf hold for the same values", i, j),
                         .hint = "anyOf, or a required property whose const tells them apart"});
          if (!repair.empty()) add(out[i], repair);
        }
      }
    }
  }
  return out;
}

}  // namespace braid::grammar
