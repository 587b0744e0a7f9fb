#include "environments/forms.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/constraint.h"
#include "grammar/json_schema.h"
#include "grammar/regex.h"

namespace braid::environments {
namespace {

using nlohmann::ordered_json;
using synth::Draw;

// Bytes as tokens: a judge reads texts.
std::shared_ptr<const grammar::TokenTrie> byte_trie() {
  std::vector<std::string> tokens;
  tokens.reserve(257);
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.emplace_back();
  const std::vector<int64_t> ends = {256};
  return std::make_shared<const grammar::TokenTrie>(tokens, ends);
}

bool is_text_of(const std::function<grammar::RuleId(grammar::Builder&)>& make, std::string_view text) {
  static const std::shared_ptr<const grammar::TokenTrie> trie = byte_trie();
  constexpr std::string_view kWhere = "environment";
  grammar::Builder b{std::string(kWhere)};
  const grammar::RuleId start = make(b);
  grammar::Matcher matcher(std::make_shared<const grammar::Constraint>(b.finish(start), trie, kWhere));
  return matcher.accept(text) && matcher.complete();
}

ordered_json user_says(const std::string& text) {
  return ordered_json::array({ordered_json{{"role", "user"}, {"content", text}}});
}

struct Property {
  const char *name, *meaning, *schema;
};
constexpr Property kProperties[] = {
    {"name", "a string", R"({"type": "string", "minLength": 1})"},
    {"age", "an integer from 0 to 120", R"({"type": "integer", "minimum": 0, "maximum": 120})"},
    {"done", "true or false", R"({"type": "boolean"})"},
    {"color", "red, green or blue", R"({"enum": ["red", "green", "blue"]})"},
    {"scores", "a list of two integers",
     R"({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2})"},
};

// JSON has one kind of number: 30.0 is an integer.
void make_whole(ordered_json& value) {
  constexpr double kExact = 0x1p53;
  if (value.is_structured()) {
    for (ordered_json& item : value) make_whole(item);
  } else if (value.is_number_float()) {
    const auto number = value.get<double>();
    if (std::abs(number) <= kExact && std::trunc(number) == number) value = static_cast<int64_t>(number);
  }
}

}  // namespace

ordered_json object_of(const std::string& answer) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  bool repeated = false;
  const ordered_json::parser_callback_t watch = [&](int, ordered_json::parse_event_t event, ordered_json& parsed) {
    using Event = ordered_json::parse_event_t;
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key) repeated |= !keys.back().insert(parsed.get<std::string>()).second;
    return true;
  };
  ordered_json value = ordered_json::parse(answer, watch, false);
  return value.is_object() && !repeated ? value : ordered_json();
}

Problem schema_problem(Draw& draw, int64_t level) {
  ordered_json properties = ordered_json::object(), required = ordered_json::array();
  std::string list;
  while (std::ssize(properties) < level + 1) {
    const Property& p = draw.pick(kProperties);
    if (properties.contains(p.name)) continue;
    properties[p.name] = ordered_json::parse(p.schema);
    required.push_back(p.name);
    list += fmt::format("{}\"{}\" ({})", list.empty() ? "" : ", ", p.name, p.meaning);
  }
  return {.messages = user_says("Answer with a JSON object that has " + list + "."),
          .secret = {{"type", "object"},
                     {"properties", std::move(properties)},
                     {"required", std::move(required)},
                     {"additionalProperties", false}}};
}

// The program has the properties in the order of the schema, the answer in any.
double satisfies_schema(const Problem& problem, const std::string& answer) {
  ordered_json value = object_of(answer);
  if (!value.is_object()) return 0;
  make_whole(value);
  ordered_json ordered = ordered_json::object();
  for (const auto& [name, schema] : problem.secret["properties"].items()) {
    if (value.contains(name)) ordered[name] = value[name];
  }
  if (ordered.size() != value.size()) return 0;
  const std::string text = ordered.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  return is_text_of([&](grammar::Builder& b) { return grammar::json_schema(b, problem.secret, "environment"); }, text)
             ? 1
             : 0;
}

Problem regex_problem(Draw& draw, int64_t level) {
  constexpr std::string_view kParts[] = {"[a-z]{{{n}}}", "[A-Z]{{{n}}}", "\\d{{{n}}}",
                                         "(cat|dog)",    "[abc]+",       "x{{{n},}}"};
  constexpr std::string_view kBetween[] = {"-", "_", "/"};
  std::string pattern;
  for (int64_t i = 0; i <= level; ++i) {
    if (i > 0) pattern += draw.pick(kBetween);
    pattern += fmt::format(fmt::runtime(draw.pick(kParts)), fmt::arg("n", draw.between(2, 4)));
  }
  return {.messages = user_says("Write a text that matches the regular expression " + pattern), .secret = pattern};
}

double matches_regex(const Problem& problem, const std::string& answer) {
  const auto make = [&](grammar::Builder& b) {
    const auto regex = grammar::Regex::parse(problem.secret.get_ref<const std::string&>(), "environment");
    return b.rule(regex.compile(b, grammar::Spelling::plain, b.done()));
  };
  return is_text_of(make, answer) ? 1 : 0;
}

}  // namespace braid::environments
