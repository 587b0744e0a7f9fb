#include "grammar/json_schema.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "grammar/json_text.h"
#include "grammar/numbers.h"
#include "grammar/regex.h"
#include "grammar/schema_check.h"
#include "grammar/schema_merge.h"
#include "grammar/schema_values.h"
#include "grammar/string_formats.h"
#include "grammar/tool_calls.h"
#include "io/ordered_json.h"
#include "io/schema_types.h"
#include "sys/error.h"
#include "sys/utf8.h"

namespace braid::grammar {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kFarthest = 999'999'999'999'999;  // the largest number that is written where no bound is larger
constexpr int64_t kCompiledMax = 50'000;            // schemas, those that were combined out of others included
constexpr size_t kUniqueMax = 64;                   // values of items that differ
constexpr int kNestingMax = 200;                    // of schemas that were combined: each level may add a few

class SchemaCompiler {
 public:
  SchemaCompiler(Builder& b, const Json& root, std::string_view where)
      : b_(b), root_(root), where_(where), merger_(root, where), text_(b) {}

  RuleId compile() {
    const RuleId rule = reference("#");
    compile_waiting();
    return rule;
  }
  RuleId compile_xml() {
    Alternatives ways;
    for (const Json& one : merger_.alternatives(root_)) {
      StateId next = b_.done();
      const std::vector<Property> properties = one.is_object() ? properties_of(one) : std::vector<Property>{};
      for (size_t i = properties.size(); i-- > 0;) {
        const StateId here = xml_parameter(properties[i], next);
        next = properties[i].required ? here : b_.any_of({here, next});
      }
      ways.push_back(one == false ? b_.any_of({}) : next);
    }
    const RuleId rule = b_.rule(b_.any_of(ways));
    compile_waiting();
    return rule;
  }

 private:
  using Alternatives = std::vector<StateId>;

  void compile_waiting() {
    while (!waiting_.empty()) {
      const auto [schema, waiting] = waiting_.front();
      waiting_.pop_front();
      b_.define(waiting, value(*schema, b_.done(), 0));
    }
  }

  static int64_t count(const Json& schema, const char* key, int64_t otherwise) {
    const Json* value = keyword_in(schema, key);
    return value ? static_cast<int64_t>(std::clamp(value->get<double>(), 0.0, 1e15)) : otherwise;
  }
  // A definition is compiled once, after what refers to it.
  RuleId reference(const std::string& name) {
    const auto [at, is_new] = references_.try_emplace(name, -1);
    if (is_new) {
      at->second = b_.declare();
      waiting_.push_back({&merger_.target(name), at->second});
    }
    return at->second;
  }

  StateId value(const Json& schema, StateId next, int depth) {
    if (++compiled_ > kCompiledMax || depth > kNestingMax)
      fail(where_, {.what = "the schema combines too many others"});
    if (schema.is_boolean()) return schema == true ? text_.any_value(next) : b_.any_of({});
    std::string only;
    int64_t keywords = 0, combining = 0;
    for (const auto& [key, unused] : schema.items()) {
      if (is_annotation(key)) continue;
      only = key;
      ++keywords;
      combining += key == "$ref" || key == "anyOf" || key == "oneOf" || key == "allOf";
    }
    const bool patterns = keyword_in(schema, "patternProperties") != nullptr;
    if (combining == 0 && !patterns) return plain(schema, next, depth);
    if (keywords == 1 && only == "$ref") return b_.call(reference(schema["$ref"]), next);
    Alternatives ways;
    if (keywords == 1 && !patterns && (only != "allOf" || schema["allOf"].size() == 1)) {
      const Json exclusive = only == "oneOf" ? merger_.exclusive(schema[only]) : Json();
      for (const Json& one : exclusive.is_null() ? schema[only] : exclusive)
        ways.push_back(value(one, next, depth + 1));
    } else {
      for (const Json& one : merger_.alternatives(schema)) ways.push_back(value(one, next, depth + 1));
    }
    return b_.any_of(ways);
  }

  // Without keywords that combine.
  StateId plain(const Json& schema, StateId next, int depth) {
    if (keyword_in(schema, "enum") || keyword_in(schema, "const")) return constants(schema, next);
    Alternatives ways;
    for (const std::string& type : types_of(schema)) {
      if (type == "string") ways.push_back(string(schema, next));
      if (type == "number" || type == "integer") ways.push_back(number_of(schema, type == "integer", next));
      if (type == "boolean") ways.insert(ways.end(), {text_.word("true", next), text_.word("false", next)});
      if (type == "null") ways.push_back(text_.word("null", next));
      if (type == "array") ways.push_back(array(schema, next, depth));
      if (type == "object") ways.push_back(object(schema, next, depth));
      if (type == "any") ways.push_back(text_.any_value(next));
    }
    return b_.any_of(ways);
  }

  // Without a type, its keywords tell.
  static std::vector<std::string> types_of(const Json& schema) {
    if (const Json* type = keyword_in(schema, "type")) {
      if (type->is_string()) return {*type};
      std::vector<std::string> out = *type;
      const bool number = std::find(out.begin(), out.end(), "number") != out.end();
      if (number) std::erase(out, "integer");
      return out;
    }
    const auto any = [&](std::initializer_list<const char*> keys) {
      return std::any_of(keys.begin(), keys.end(), [&](const char* key) { return keyword_in(schema, key); });
    };
    std::vector<std::string> out;
    if (any({"properties", "required", "additionalProperties", "propertyNames", "minProperties", "maxProperties"}))
      out.push_back("object");
    if (any({"items", "prefixItems", "minItems", "maxItems", "uniqueItems"})) out.push_back("array");
    if (any({"minLength", "maxLength", "pattern", "format"})) out.push_back("string");
    if (any({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})) out.push_back("number");
    if (out.empty()) out.push_back("any");
    return out;
  }

  std::vector<Json> values_of(const Json& schema) const { return listed_values(schema, where_); }
  StateId constants(const Json& schema, StateId next) {
    std::vector<std::string> texts;
    for (const Json& v : values_of(schema)) texts.push_back(io::dumped(v));
    return b_.literals(texts, next);
  }

  StateId string(const Json& schema, StateId next) {
    const auto regex = regex_of(schema);
    if (regex) return b_.literal("\"", regex->compile(b_, Spelling::json, b_.literal("\"", next)));
    return text_.string(count(schema, "minLength", 0), count(schema, "maxLength", kUnbounded), next);
  }
  // Of pattern or format, with the length within its bounds; nullopt: any text.
  std::optional<Regex> regex_of(const Json& schema) const {
    std::string pattern;
    if (const Json* format = keyword_in(schema, "format")) pattern = format_pattern(*format, where_);
    if (const Json* given = keyword_in(schema, "pattern")) {
      if (!pattern.empty())
        fail(where_,
             {.what = "pattern and format of one string are not supported", .got = printable(io::dumped(*given), 80)});
      pattern = enforced_pattern(*given);
    } else if (pattern.empty()) {
      return std::nullopt;
    }
    Regex regex = Regex::parse(pattern, where_);
    const int64_t min = count(schema, "minLength", 0), max = count(schema, "maxLength", kUnbounded);
    const Regex::Lengths lengths = regex.lengths();
    if (lengths.min >= min && (max < 0 || (lengths.max >= 0 && lengths.max <= max))) return regex;
    regex = regex.with_length(min, max);
    if (regex.empty())
      fail(where_,
           {.what = "minLength or maxLength beside a pattern or format whose texts may be shorter or longer is not "
                    "supported",
            .got = printable(pattern, 80),
            .hint = "the length inside the pattern, such as ^[a-z]{1,8}$"});
    return regex;
  }

  struct Limit {
    Decimal at;
    bool exact = true;
    bool beyond = false;  // all numbers that are written
  };
  // `inward`: what a bound that is no such number is rounded to. A multiple has to be one.
  enum class Inward { none, up, down };
  std::optional<Limit> limit_of(const Json& schema, const char* key, Inward inward) const {
    const Json* value = keyword_in(schema, key);
    if (!value) return std::nullopt;
    const std::string text = io::dumped(*value);
    if (const auto decimal = decimal_of(text)) return Limit{*decimal};
    if (inward != Inward::none) {
      const bool up = inward == Inward::up;
      if (const auto rounded = decimal_rounded(text, up)) return Limit{.at = *rounded, .exact = false};
      if (lies_beyond(text, !up)) return Limit{.at = {up ? -kFarthest : kFarthest}, .exact = false, .beyond = true};
    }
    fail(where_, {.what = fmt::format("the keyword \"{}\" is not supported with this value", key),
                  .got = text,
                  .expected = "at most 18 digits, 15 of them after the point"});
  }
  // Whether the exclusive one of two bounds of a side is the one to keep.
  static bool is_narrower(const std::optional<Limit>& exclusive, const std::optional<Limit>& other, bool lower) {
    if (!exclusive || !other) return exclusive.has_value();
    if (exclusive->beyond || other->beyond) return other->beyond;
    return lower ? !(exclusive->at < other->at) : !(other->at < exclusive->at);
  }
  StateId number_of(const Json& schema, bool integer, StateId next) {
    NumberBounds bounds{.integer = integer};
    std::optional<Limit> min = limit_of(schema, "minimum", Inward::up), max = limit_of(schema, "maximum", Inward::down);
    if (const auto step = limit_of(schema, "multipleOf", Inward::none)) bounds.multiple = step->at;
    // One that was rounded is inside.
    if (const auto above = limit_of(schema, "exclusiveMinimum", Inward::up); is_narrower(above, min, true))
      min = above, bounds.min_exclusive = above->exact;
    if (const auto below = limit_of(schema, "exclusiveMaximum", Inward::down); is_narrower(below, max, false))
      max = below, bounds.max_exclusive = below->exact;
    // Beside another bound, which may have more digits, one beyond all says nothing.
    if (min && max && min->beyond != max->beyond) (min->beyond ? min : max).reset();
    if (min) bounds.min = min->at;
    if (max) bounds.max = max->at;
    return number(b_, bounds, where_, next);
  }

  StateId array(const Json& schema, StateId next, int depth) {
    const Json none = Json::array(), *given = keyword_in(schema, "prefixItems");
    const Json& prefix = given ? *given : none;
    const auto fixed = std::ssize(prefix);
    const int64_t min = count(schema, "minItems", 0);
    int64_t max = count(schema, "maxItems", kUnbounded);
    const Json* items = keyword_in(schema, "items");
    // Beyond the prefix only where it is asked for.
    if ((items && *items == false) || (!items && fixed > 0 && min <= fixed))
      max = max < 0 ? fixed : std::min(max, fixed);
    const Json one = items ? *items : Json(true);
    const auto element = [&](StateId after) { return value(one, after, depth + 1); };
    const Json* unique = keyword_in(schema, "uniqueItems");
    if (unique && *unique == true && (max < 0 || max > 1)) return unique_items(one, fixed, min, max, next);
    if (fixed == 0) return text_.list('[', ']', min, max, element, next);
    const StateId end = text_.close(']', next);
    StateId after = end;
    if (max < 0 || max > fixed) {
      const RuleId further = b_.rule(text_.comma(element(b_.done())));
      after = b_.repeat(further, min - fixed, max < 0 ? max : max - fixed, end);
    } else if (min > fixed) {
      return b_.any_of({});
    }
    for (int64_t i = fixed; i-- > 0;) {
      const bool may_end = i >= min, must_end = max >= 0 && i >= max;
      const StateId shorter = i > 0 ? end : b_.any_of({});
      StateId here = value(prefix[static_cast<size_t>(i)], after, depth + 1);
      if (i > 0) here = text_.comma(here);
      after = must_end ? shorter : may_end ? b_.any_of({here, shorter}) : here;
    }
    after = text_.open('[', after);
    return min == 0 ? b_.any_of({after, text_.empty('[', ']', next)}) : after;
  }

  // The texts of all values of a schema that has few; nullopt: it has others, or too many.
  std::optional<std::vector<std::string>> finite_texts(const Json& schema) {
    std::vector<Json> found;
    for (const Json& one : merger_.alternatives(schema)) {
      if (one == false) continue;
      if (!one.is_object()) return std::nullopt;
      std::vector<Json> values;
      if (keyword_in(one, "enum") || keyword_in(one, "const")) {
        values = values_of(one);
      } else {
        for (const std::string& type : types_of(one)) {
          if (type == "boolean") values.insert(values.end(), {true, false});
          if (type == "null") values.push_back(nullptr);
          if (type != "boolean" && type != "null") return std::nullopt;
        }
      }
      for (const Json& v : values) {
        const auto same = [&](const Json& other) { return same_value(v, other); };
        if (std::ranges::none_of(found, same)) found.push_back(v);
        if (found.size() > kUniqueMax) return std::nullopt;
      }
    }
    std::vector<std::string> out;
    out.reserve(found.size());
    for (const Json& v : found) out.push_back(io::dumped(v));
    return out;
  }
  // Elements that differ, of those few: each once, in the schema's order. `rest[c]` follows c elements out of the
  // values before those that are left.
  StateId unique_items(const Json& items, int64_t fixed, int64_t min, int64_t max, StateId next) {
    const auto texts = fixed == 0 ? finite_texts(items) : std::nullopt;
    if (!texts)
      fail(where_, {.what = fmt::format("the keyword \"uniqueItems\" is supported for items of at most {} enum, const, "
                                        "boolean and null values only",
                                        kUniqueMax),
                    .hint = "a schema without it"});
    const size_t n = texts->size();
    const StateId end = text_.close(']', next);
    std::vector<StateId> rest(n + 1);
    for (size_t c = 1; c <= n; ++c) rest[c] = static_cast<int64_t>(c) >= min ? end : b_.any_of({});
    rest[0] = b_.any_of({});
    for (size_t i = n; i-- > 0;) {
      const std::string& text = (*texts)[i];
      for (size_t c = 0; c <= i; ++c) {
        if (max >= 0 && static_cast<int64_t>(c) >= max) continue;
        const StateId here = b_.literal(text, rest[c + 1]);
        rest[c] = b_.any_of({c > 0 ? text_.comma(here) : here, rest[c]});
      }
    }
    const StateId first = text_.open('[', rest[0]);
    return min == 0 ? b_.any_of({first, text_.empty('[', ']', next)}) : first;
  }

  struct Property {
    std::string name;
    Json schema;
    bool required;
  };
  std::vector<Property> properties_of(const Json& schema) const {
    std::vector<Property> out;
    std::vector<std::string> required;
    if (const Json* names = keyword_in(schema, "required")) required = *names;
    if (const Json* properties = keyword_in(schema, "properties")) {
      for (const auto& [name, inside] : properties->items())
        out.push_back({name, inside, std::find(required.begin(), required.end(), name) != required.end()});
    }
    const Json* additional = keyword_in(schema, "additionalProperties");
    for (const std::string& name : required) {
      const bool known = std::any_of(out.begin(), out.end(), [&](const Property& p) { return p.name == name; });
      if (!known) out.push_back({name, additional ? *additional : Json(true), true});
    }
    return out;
  }

  StateId object(const Json& schema, StateId next, int depth) {
    const std::vector<Property> properties = properties_of(schema);
    const Json* additional = keyword_in(schema, "additionalProperties");
    const bool more = additional ? *additional != false : !keyword_in(schema, "properties");
    const int64_t min = count(schema, "minProperties", 0), max = count(schema, "maxProperties", kUnbounded);
    const Json* names = keyword_in(schema, "propertyNames");
    // Keys may be written twice, so that no number of them is enough; beside properties, what holds anyhow is allowed.
    const auto always = std::ranges::count_if(properties, &Property::required);
    const auto refuse = [&](const char* keyword, const char* why) {
      fail(where_, {.what = fmt::format("the keyword \"{}\" {} is not supported", keyword, why)});
    };
    if (min > std::max<int64_t>(always, properties.empty() ? 1 : 0))
      refuse("minProperties", properties.empty() ? "above 1" : "above the number of required properties");
    if (!properties.empty() && max >= 0 && (more || max < std::ssize(properties)))
      refuse("maxProperties", "below the number of properties");
    if (!properties.empty() && names)
      refuse(SchemaMerger::is_named_pattern(*names) ? "patternProperties" : "propertyNames", "beside properties");
    std::vector<std::string> known;
    known.reserve(properties.size());
    for (const Property& p : properties) known.push_back(p.name);
    const auto member = [&](StateId after) {
      const StateId inside = text_.colon(value(additional ? *additional : Json(true), after, depth + 1));
      return names ? value(merged_name(*names), inside, depth + 1) : text_.other_key(known, inside);
    };
    if (properties.empty()) return text_.list('{', '}', min, more ? max : 0, member, next);
    const StateId end = text_.close('}', next);
    // What may follow the properties, when none of them has come and when one has.
    StateId first = b_.any_of({}), later = end;
    if (more) {
      const RuleId further = b_.rule(text_.comma(member(b_.done())));
      later = b_.repeat(further, 0, kUnbounded, end);
      first = member(later);
    }
    bool may_be_empty = true;
    for (size_t i = properties.size(); i-- > 0;) {
      const Property& p = properties[i];
      const StateId here = b_.literal(Json(p.name).dump(), text_.colon(value(p.schema, later, depth + 1)));
      const StateId next_one = text_.comma(here);
      may_be_empty = may_be_empty && !p.required;
      first = p.required ? here : b_.any_of({here, first});
      later = p.required ? next_one : b_.any_of({next_one, later});
    }
    first = text_.open('{', first);
    return may_be_empty ? b_.any_of({first, text_.empty('{', '}', next)}) : first;
  }

  StateId xml_parameter(const Property& p, StateId next) {
    if (p.name.empty() || p.name.find_first_of(">\n") != p.name.npos)
      fail(where_, {.what = "the name of a parameter cannot be enforced",
                    .got = printable(p.name, 60),
                    .expected = "no > and no newline"});
    const StateId end = b_.literal("\n</parameter>\n", next);
    // Over all alternatives of the root, as the reader of calls sees it (text/tool_calls.h).
    const io::ParameterForm form = io::parameter_form(root_, p.name);
    const bool plain = form == io::ParameterForm::text || form == io::ParameterForm::optional_text;
    const StateId inside = plain ? xml_text(p, form == io::ParameterForm::optional_text, end) : value(p.schema, end, 0);
    return b_.literal("<parameter=" + p.name + ">\n", inside);
  }
  // Plain text in which the reader of calls finds none of the form's own tags (text/tool_calls.h), nor takes it for
  // something else where it may be null. JSON needs no such care: its reader knows where it ends.
  StateId xml_text(const Property& p, bool optional, StateId next) {
    const CharSet special = optional ? CharSet{{'"', '"'}, {'<', '<'}} : CharSet{{'<', '<'}};
    Alternatives ways;
    for (const Json& one : merger_.alternatives(p.schema)) {
      if (one == false) continue;
      const std::vector<std::string> types = one == true ? std::vector<std::string>{"any"} : types_of(one);
      if (keyword_in(one, "enum") || keyword_in(one, "const")) {
        std::vector<std::string> texts;
        for (const Json& v : values_of(one)) texts.push_back(xml_constant(p.name, v, optional));
        ways.push_back(b_.literals(texts, next));
        continue;
      }
      if (std::ranges::find(types, "null") != types.end()) ways.push_back(b_.literal("null", next));
      if (std::ranges::find(types, "string") == types.end() && types[0] != "any") continue;
      if (const auto regex = regex_of(one)) {
        ways.push_back(xml_regex(p.name, *regex, special, optional, next));
      } else if (keyword_in(one, "minLength") || keyword_in(one, "maxLength")) {
        const CharSet plain = intersection(complement(special), {{' ', kCharMax}});
        const RuleId any = b_.rule(character(b_, plain, Spelling::plain, b_.done()));
        ways.push_back(b_.repeat(any, count(one, "minLength", 0), count(one, "maxLength", kUnbounded), next));
      } else {
        ways.push_back(text_without(b_, {kXmlTags.begin(), kXmlTags.end()}, next));
      }
    }
    return b_.any_of(ways);
  }
  // Where plain text would be taken for something else, a JSON string, if it may be null.
  std::string xml_constant(const std::string& name, const Json& value, bool optional) const {
    if (!value.is_string()) return io::dumped(value);
    const std::string& text = value.get_ref<const std::string&>();
    const std::string lines = "\n" + text;
    bool tagged = text.find("</parameter>") != text.npos;
    for (const char* tag : {"\n<parameter=", "\n</function>", "\n</tool_call>", "\n</TOOLCALL>"})
      tagged = tagged || lines.find(tag) != lines.npos;
    if (optional && (tagged || text == "null" || text.starts_with('"'))) return value.dump();
    if (tagged)
      fail(where_,
           {.what = fmt::format("a value of the parameter \"{}\" has a tag of the form that calls are written in",
                                printable(name, 60)),
            .got = printable(text, 60),
            .expected = "no </parameter>, and no <parameter=, </function> or </tool_call> at the start of a line"});
    return text;
  }
  StateId xml_regex(const std::string& name, const Regex& regex, const CharSet& special, bool optional, StateId next) {
    const Regex plain = regex.without(special);
    if (!plain.empty()) return plain.compile(b_, Spelling::plain, next);
    if (optional) return b_.literal("\"", regex.compile(b_, Spelling::json, b_.literal("\"", next)));
    fail(where_,
         {.what = fmt::format("the pattern of the parameter \"{}\" needs a <, which could begin a tag of the form "
                              "that calls are written in",
                              printable(name, 60)),
          .hint = "a pattern that has texts without <"});
  }

  // Keys are strings, whatever propertyNames says of its type.
  static Json merged_name(const Json& names) {
    if (!names.is_object()) return names == true ? Json{{"type", "string"}} : names;
    Json out = names;
    out["type"] = "string";
    return out;
  }

  Builder& b_;
  const Json& root_;
  std::string_view where_;
  SchemaMerger merger_;
  JsonText text_;
  std::map<std::string, RuleId> references_;
  struct Waiting {
    const Json* schema;
    RuleId rule;
  };
  std::deque<Waiting> waiting_;
  int64_t compiled_ = 0;
};

}  // namespace

RuleId xml_parameters(Builder& b, const Json& schema, std::string_view where) {
  check_schema(schema, where);
  return SchemaCompiler(b, schema, where).compile_xml();
}

RuleId json_schema(Builder& b, const Json& schema, std::string_view where) {
  check_schema(schema, where);
  return SchemaCompiler(b, schema, where).compile();
}

}  // namespace braid::grammar
