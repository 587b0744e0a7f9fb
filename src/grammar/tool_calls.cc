#include "grammar/tool_calls.h"

#include <algorithm>
#include <map>

#include "grammar/characters.h"
#include "grammar/json_schema.h"
#include "sys/error.h"

namespace braid::grammar {
namespace {

using Json = nlohmann::ordered_json;

void check_name(const std::string& name, std::string_view where) {
  const bool plain = std::all_of(name.begin(), name.end(), [](char ch) {
    return (ch >= '0' && ch <= '9') || (ch >= 'A' && ch <= 'Z') || (ch >= 'a' && ch <= 'z') ||
           std::string_view("_-.:/").find(ch) != std::string_view::npos;
  });
  if (plain && !name.empty() && name.size() <= 256) return;
  fail(where, {.what = "the name of a function cannot be enforced",
               .got = printable(name, 60),
               .expected = "1 to 256 letters, digits and _-.:/"});
}

StateId call_of(Builder& b, const Function& f, CallForm form, std::string_view where, StateId next) {
  check_name(f.name, where);
  const Json parameters =
      f.parameters.is_null() ? Json{{"type", "object"}, {"properties", Json::object()}} : f.parameters;
  if (form == CallForm::xml) {
    const StateId end = b.literal("</function>\n", b.tag("</tool_call>", next));
    const StateId begin = b.literal("\n<function=" + f.name + ">\n", b.call(xml_parameters(b, parameters, where), end));
    return b.tag("<tool_call>", begin);
  }
  const bool tagged = form == CallForm::json;
  const StateId end = b.literal(tagged ? "}\n" : "}", tagged ? b.tag("</tool_call>", next) : next);
  const std::string begin = R"({"name": )" + Json(f.name).dump() + R"(, "arguments": )";
  // A schema that says nothing of its type is still one of an object.
  Json object = parameters;
  if (object.is_object() && !object.contains("type") && !object.contains("$ref")) object["type"] = "object";
  const StateId call = b.literal(begin, b.call(json_schema(b, object, where), end));
  return tagged ? b.tag("<tool_call>", b.literal("\n", call)) : call;
}

}  // namespace

// The automaton of Aho and Corasick for the forbidden texts, without the states that have read one of them.
StateId text_without(Builder& b, const std::vector<std::string>& forbidden, StateId next) {
  std::map<std::string, StateId> states;  // by what has been read of a forbidden text
  const auto announce = [&](const std::string& read) {
    if (!states.contains(read)) states[read] = b.later();
  };
  announce("");
  for (const std::string& text : forbidden) {
    for (size_t n = 1; n < text.size(); ++n) announce(text.substr(0, n));
  }
  const StateId longer = character(b, {{0x80, kCharMax}}, Spelling::plain, states.at(""));
  const auto ends_in_forbidden = [&](const std::string& read) {
    return std::any_of(forbidden.begin(), forbidden.end(),
                       [&](const std::string& text) { return read.ends_with(text); });
  };
  for (const auto& [prefix, state] : states) {
    std::vector<ByteEdge> edges;
    for (uint8_t byte = '\t'; byte < 0x80; ++byte) {
      if (byte < ' ' && byte != '\n' && byte != '\t') continue;
      std::string read = prefix + static_cast<char>(byte);
      if (ends_in_forbidden(read)) continue;
      while (!states.contains(read)) read.erase(0, 1);
      const StateId to = states.at(read);
      if (!edges.empty() && edges.back().next == to && edges.back().last + 1 == byte)
        edges.back().last = byte;
      else
        edges.push_back({byte, byte, to});
    }
    b.bind(state, b.any_of({b.bytes(std::move(edges)), longer, next}));
  }
  return states.at("");
}

RuleId tool_calls(Builder& b, const std::vector<Function>& functions, const CallOptions& options,
                  std::string_view where) {
  const bool list = options.form == CallForm::list;
  std::vector<StateId> ways;
  ways.reserve(functions.size());
  for (const Function& f : functions) ways.push_back(call_of(b, f, options.form, where, b.done()));
  const RuleId one = b.rule(b.any_of(ways));
  const StateId end = list ? b.literal("]", b.tag("</TOOLCALL>", b.done())) : b.done();
  const RuleId further = b.rule(b.literal(list ? ", " : "\n", b.call(one, b.done())));
  const StateId calls = b.call(one, b.repeat(further, 0, options.many ? kCallsMax - 1 : 0, end));
  const StateId begin = list ? b.tag("<TOOLCALL>", b.literal("[", calls)) : calls;
  if (!options.text_first) return b.rule(begin);
  return b.rule(text_without(b, {"<tool_call>", "<TOOLCALL>"}, b.any_of({begin, b.done()})));
}

}  // namespace braid::grammar
