#include "grammar/one_of.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "grammar/exact_numbers.h"
#include "grammar/regex.h"
#include "grammar/regex_overlap.h"
#include "grammar/schema_values.h"
#include "grammar/string_formats.h"
#include "sys/error.h"

namespace braid::grammar {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kInsideMax = 3;               // properties inside properties that are compared
constexpr int64_t kStepsMax = 10'000'000;   // values of schemas that are compared: enough for 256 with some properties
constexpr int64_t kPairStepsMax = 600'000;  // of two patterns, so that some do not use up what others need

// Of the texts written for one schema: none satisfies another schema, some may, some may and that could be told with
// more work, some do.
enum class Overlap { none, unknown, too_complex, some };

Overlap worse(Overlap a, Overlap b) { return std::max(a, b); }

Holds both(Holds a, Holds b) { return a == Holds::no || b == Holds::no ? Holds::no : a == Holds::unknown ? a : b; }
Holds either(Holds a, Holds b) { return a == Holds::yes || b == Holds::yes ? Holds::yes : a == Holds::unknown ? a : b; }

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
  const bool object = has_any(schema, {"properties", "required", "additionalProperties", "patternProperties",
                                       "propertyNames", "minProperties", "maxProperties"}),
             array = has_any(schema, {"items", "prefixItems", "minItems", "maxItems", "uniqueItems"}),
             string = has_any(schema, {"minLength", "maxLength", "pattern", "format"}),
             number = has_any(schema, {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"});
  if (!object && !array && !string && !number) return true;
  return type == "object" ? object : type == "array" ? array : type == "string" ? string : type == "number" && number;
}

// Exact: integers next to each other from 2^53 on are one double.
using Wide = long double;
Wide number_of(const Json& schema, const char* key, Wide otherwise) {
  const Json* value = keyword_in(schema, key);
  return value ? wide_of(*value) : otherwise;
}
constexpr Wide kInfinite = std::numeric_limits<Wide>::infinity();

Overlap of_counts(const Json& a, const Json& b, const char* least, const char* most) {
  const Wide low = std::max(number_of(a, least, 0), number_of(b, least, 0)),
             high = std::min(number_of(a, most, kInfinite), number_of(b, most, kInfinite));
  return low > high ? Overlap::none : Overlap::some;
}

Overlap of_numbers(const Json& a, const Json& b) {
  Wide low = -kInfinite, high = kInfinite;
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

const Json kAnyValue = true;

class Comparison {
 public:
  Comparison(const WaysOf& ways_of, TextSteps& left, std::string_view where)
      : ways_of_(ways_of), where_(where), left_(left), common_texts_(kPairStepsMax, left.common) {}

  // Of what `a` writes, under `b`. `repair`, where it is asked for: what to add to `a` for none.
  Overlap of(const Json& a, const Json& b, int depth, Json* repair = nullptr) {
    if (a == false || b == false) return Overlap::none;
    if (depth > kInsideMax) return Overlap::unknown;
    if (!spend(a) || !spend(b)) return Overlap::too_complex;
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
      Holds held = Holds::yes;
      unmatched_ = false;
      for (const auto& [key, operand] : other.items()) {
        if (held == Holds::no) break;
        held = both(held, key != "enum"                   ? of_value(v, key, other)
                          : others.contains(canonical(v)) ? Holds::yes
                                                          : Holds::no);
      }
      if (held == Holds::yes) return Overlap::some;
      if (held == Holds::unknown) out = worse(out, unmatched_ ? Overlap::too_complex : Overlap::unknown);
    }
    return out;
  }
  // A value under one keyword of a schema, its inside included. Patterns of keys hold: a value that only they could
  // keep apart is one that both alternatives may allow.
  Holds of_value(const Json& v, const std::string& key, const Json& schema) {
    const Json& operand = schema[key];
    Holds out = Holds::yes;
    if (key == "properties" || key == "additionalProperties" || key == "patternProperties" || key == "propertyNames") {
      const Json* named = keyword_in(schema, "properties");
      const bool patterns = keyword_in(schema, "patternProperties") != nullptr;
      if (!v.is_object() || key == "patternProperties") return out;
      for (const auto& [name, inside] : v.items()) {
        if (key == "properties" && operand.contains(name)) out = both(out, satisfies(inside, operand[name]));
        if (key == "additionalProperties" && !patterns && !(named && named->contains(name)))
          out = both(out, satisfies(inside, operand));
        if (key == "propertyNames" && satisfies(name, operand) == Holds::no) out = Holds::no;
      }
      return out;
    }
    if (key == "items" || key == "prefixItems") {
      const Json* prefix = keyword_in(schema, "prefixItems");
      const size_t fixed = prefix ? prefix->size() : 0;
      for (size_t i = 0; v.is_array() && i < v.size(); ++i) {
        if ((i < fixed) == (key == "prefixItems")) out = both(out, satisfies(v[i], i < fixed ? operand[i] : operand));
      }
      return out;
    }
    if (key == "uniqueItems")
      return !v.is_array() || operand == false || value_set(v).size() == v.size() ? Holds::yes : Holds::no;
    return key == "pattern" && v.is_string() ? of_text(v, operand) : holds(v, key, operand);
  }
  // Validators take classes for more characters than expressions here do (grammar/regex.h), but not among these.
  Holds of_text(const std::string& text, const std::string& pattern) {
    if (search_for(enforced_pattern(pattern)).matches(text, left_.matching)) return Holds::yes;
    unmatched_ = unmatched_ || left_.matching <= 0;
    const bool plain = std::ranges::all_of(text, [](char ch) { return ch >= ' ' && ch <= '~'; });
    return plain && left_.matching > 0 ? Holds::no : Holds::unknown;
  }
  const Regex& whole(const std::string& pattern) {
    auto at = wholes_.find(pattern);
    if (at == wholes_.end()) at = wholes_.emplace(pattern, Regex::parse(pattern, where_)).first;
    return at->second;
  }
  // Of texts with a match anywhere; where anchors leave no other place, the whole.
  const Regex& search_for(const std::string& pattern) {
    auto at = searches_.find(pattern);
    if (at == searches_.end()) at = searches_.emplace(pattern, Regex::parse_search(pattern, where_)).first;
    const Regex& all = whole(pattern);
    return at->second == all ? all : at->second;
  }
  Holds satisfies(const Json& v, const Json& schema) {
    if (schema.is_boolean()) return schema == true ? Holds::yes : Holds::no;
    const std::optional<Ways>& ways = ways_of(schema);
    if (!ways) return Holds::unknown;
    Holds out = Holds::no;
    for (const Json& way : *ways) {
      if (!spend(way)) return Holds::unknown;
      Holds held = way == false ? Holds::no : Holds::yes;
      if (way.is_object()) {
        for (const auto& item : way.items()) held = held == Holds::no ? held : both(held, of_value(v, item.key(), way));
      }
      out = either(out, held);
    }
    return out;
  }
  // Of the alternatives, or inside what this found for them: none of those schemas ends before this.
  const std::optional<Ways>& ways_of(const Json& schema) {
    static const std::optional<Ways> kAny = Ways{true}, kNone = Ways{false};
    if (schema.is_boolean()) return schema == true ? kAny : kNone;
    auto at = known_ways_.find(&schema);
    if (at == known_ways_.end()) at = known_ways_.emplace(&schema, ways_of_(schema)).first;
    return at->second;
  }
  Overlap of_schemas(const Json& a, const Json& b, int depth) {
    if (a == true && b == true) return Overlap::some;
    const std::optional<Ways>&first = ways_of(a), &second = ways_of(b);
    if (!first || !second) return Overlap::unknown;
    Overlap out = Overlap::none;
    for (const Json& one : *first) {
      for (const Json& other : *second) out = worse(out, of(one, other, depth));
    }
    return out;
  }

  // The strings that `a` writes, under `b`, which validators search for its pattern. Where a format tells them apart
  // here, validators may still accept a text for both: they read formats more widely, or not at all.
  Overlap of_strings(const Json& a, const Json& b) {
    const Overlap counts = of_counts(a, b, "minLength", "maxLength");
    if (counts == Overlap::none || !(is_described(a) || is_described(b))) return counts;
    std::vector<const Regex*> all;
    bool has_format = false, plain = false;
    for (const Json* s : {&a, &b}) {
      if (const Json* pattern = keyword_in(*s, "pattern")) {
        const std::string text = enforced_pattern(*pattern);
        all.push_back(s == &a ? &whole(text) : &search_for(text));
        plain = plain || (s == &a && all.back()->is_plain());
      }
      const Json* format = keyword_in(*s, "format");
      const std::string text = format ? format_pattern(*format, where_) : "";
      if (!text.empty()) all.push_back(&whole(text)), has_format = true;
    }
    std::optional<bool> common = common_texts_.of(all);
    const auto least = static_cast<int64_t>(std::max(number_of(a, "minLength", 0), number_of(b, "minLength", 0)));
    const Wide most = std::min(number_of(a, "maxLength", kInfinite), number_of(b, "maxLength", kInfinite));
    if (common.value_or(false) && (least > 0 || most < kInfinite)) {
      const int64_t longest = most < kInfinite ? static_cast<int64_t>(most) : kUnbounded;
      all.push_back(&lengths_.try_emplace({least, longest}, Regex::any_text(least, longest)).first->second);
      common = common_texts_.of(all);
    }
    if (!common) return Overlap::too_complex;
    return *common ? Overlap::some : has_format || !plain ? Overlap::unknown : Overlap::none;
  }
  static bool is_described(const Json& s) { return has_any(s, {"pattern", "format"}); }

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
      patterns = keyword_in(schema, "patternProperties") || keyword_in(schema, "propertyNames");
      if (additional && !keyword_in(schema, "patternProperties")) further = additional;
      writes_more = patterns || (additional ? *additional != false : !keyword_in(schema, "properties"));
    }
    std::map<std::string, const Json*> properties{};
    std::map<std::string, bool> required{};
    const Json* further = &kAnyValue;  // of properties without a name here
    bool patterns = false, writes_more = true;

    bool has(const std::string& name) const {
      const auto at = properties.find(name);
      return at != properties.end() && *at->second != false;
    }
    bool writes(const std::string& name) const { return has(name) || required.contains(name) || writes_more; }
    bool allows(const std::string& name) const { return inside(name) != false; }
    const Json& inside(const std::string& name) const {
      const auto at = properties.find(name);
      return at != properties.end() ? *at->second : *further;
    }
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
    std::string telling;             // tells them apart where it is written
    std::vector<std::string> names;  // required ones first, of which one may be enough
    for (const auto& [name, unused] : second.required) names.push_back(name);
    for (const auto& [name, unused] : first.required) {
      if (!second.required.contains(name)) names.push_back(name);
    }
    for (const auto& [name, unused] : first.properties) {
      if (!first.required.contains(name) && !second.required.contains(name)) names.push_back(name);
    }
    for (const std::string& name : names) {
      const Json &inside = first.inside(name), &other = second.inside(name);
      if (other == true) continue;
      const Overlap here = of_schemas(inside, other, depth + 1);
      const bool written = first.required.contains(name) || second.required.contains(name);
      if (here == Overlap::none && written) return Overlap::none;
      if (here == Overlap::none && telling.empty() && inside != false && first.properties.contains(name))
        telling = name;
      if (written) out = std::min(out, here);
    }
    if (!repair || first.patterns) return out;  // patterns stand beside no properties
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
  std::map<const Json*, std::optional<Ways>> known_ways_;
  TextSteps& left_;
  bool unmatched_ = false;                          // some text of a listed value: its steps ran out
  std::map<std::string, Regex> wholes_, searches_;  // by their patterns
  std::map<std::pair<int64_t, int64_t>, Regex> lengths_;
  CommonTexts common_texts_;  // of those
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

std::vector<Json> exclusions(const std::vector<Ways>& alternatives, const WaysOf& ways_of, TextSteps& left,
                             std::string_view where) {
  Comparison comparison(ways_of, left, where);
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
          if (overlap == Overlap::too_complex && repair.empty())
            fail(where,
                 {.what = fmt::format("the alternatives {} and {} of a oneOf, or their patterns, are too complex to be "
                                      "compared",
                                      i, j),
                  .hint = "anyOf, shorter patterns, or a required property whose const tells them apart"});
          if (!repair.empty()) add(out[i], repair);
        }
      }
    }
  }
  return out;
}

}  // namespace braid::grammar
