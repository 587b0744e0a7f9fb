#include "grammar/tool_calls.h"

#include <algorithm>
#include <map>
#include <optional>

#include "grammar/characters.h"
#include "grammar/json_schema.h"
#include "grammar/json_text.h"
#include "sys/error.h"

namespace braid::grammar {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kNameMax = 128, kParametersMax = 1000;

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

// Any parameters in the XML form, then `next`.
StateId any_parameters(Builder& b, StateId next) {
  const CharSet in_names = complement({{0, ' '}, {'<', '<'}, {'>', '>'}});
  const StateId end = b.literal("\n</parameter>\n", b.done());
  const StateId value = b.literal(">\n", text_without(b, {kXmlTags.begin(), kXmlTags.end()}, end));
  const RuleId letter = b.rule(character(b, in_names, Spelling::plain, b.done()));
  const RuleId one = b.rule(b.literal("<parameter=", b.repeat(letter, 1, kNameMax, value)));
  return b.repeat(one, 0, kParametersMax, next);
}

StateId call_of(Builder& b, const Function& f, CallForm form, std::string_view where, StateId next) {
  check_name(f.name, where);
  const Json parameters =
      f.parameters.is_null() ? Json{{"type", "object"}, {"properties", Json::object()}} : f.parameters;
  if (form == CallForm::xml) {
    const StateId end = b.literal("</function>\n", b.tag("</tool_call>", next));
    const StateId values = f.any_arguments ? any_parameters(b, end) : b.call(xml_parameters(b, parameters, where), end);
    const StateId begin = b.literal("\n<function=" + f.name + ">\n", values);
    return b.tag("<tool_call>", begin);
  }
  const bool tagged = form == CallForm::json;
  const StateId end = b.literal(tagged ? "}\n" : "}", tagged ? b.tag("</tool_call>", next) : next);
  const std::string begin =
      R"({"name": )" + Json(f.name).dump() + (form == CallForm::bare ? R"(, "parameters": )" : R"(, "arguments": )");
  // A schema that says nothing of its type is still one of an object.
  Json object = parameters;
  if (object.is_object() && !object.contains("type") && !object.contains("$ref")) object["type"] = "object";
  const StateId arguments = f.any_arguments ? JsonText(b).any_object(end) : b.call(json_schema(b, object, where), end);
  const StateId call = b.literal(begin, arguments);
  return tagged ? b.tag("<tool_call>", b.literal("\n", call)) : call;
}

// The automaton of Aho and Corasick for some texts: its states by what has been read of one of them.
class Watch {
 public:
  Watch(Builder& b, const std::vector<std::string>& texts) : texts_(texts) {
    announce(b, "");
    for (const std::string& text : texts_) {
      for (size_t n = 1; n < text.size(); ++n) announce(b, text.substr(0, n));
    }
  }
  const std::map<std::string, StateId>& states() const { return states_; }
  StateId start() const { return states_.at(""); }
  // The text that `read` ends with, by its index; -1: none.
  int64_t found(const std::string& read) const {
    const auto at = std::ranges::find_if(texts_, [&](const std::string& text) { return read.ends_with(text); });
    return at == texts_.end() ? -1 : at - texts_.begin();
  }
  // Of the longest end of `read` that begins a text.
  StateId after(std::string read) const {
    while (!states_.contains(read)) read.erase(0, 1);
    return states_.at(read);
  }

 private:
  void announce(Builder& b, const std::string& read) {
    if (!states_.contains(read)) states_[read] = b.later();
  }

  std::vector<std::string> texts_;
  std::map<std::string, StateId> states_;
};

void add_edge(std::vector<ByteEdge>& edges, int byte, StateId to) {
  if (!edges.empty() && edges.back().next == to && edges.back().last + 1 == byte)
    edges.back().last = static_cast<uint8_t>(byte);
  else
    edges.push_back({static_cast<uint8_t>(byte), static_cast<uint8_t>(byte), to});
}

bool is_space(int byte) { return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r'; }

// Any bytes, tags that are tokens included, up to one of the texts, after which it goes on at its state; or to the end.
// With `brace`, a brace that nothing but white space precedes is read there.
StateId bytes_up_to(Builder& b, const std::vector<std::string>& texts, const std::vector<StateId>& next,
                    std::optional<StateId> brace = {}) {
  const Watch watch(b, texts);
  const StateId first = brace ? b.later() : -1;
  const auto edges_after = [&](const std::string& prefix, bool nothing_yet) {
    std::vector<ByteEdge> edges;
    for (int byte = 0; byte < 256; ++byte) {
      if (nothing_yet && byte == '{') continue;
      const std::string read = prefix + static_cast<char>(byte);
      const int64_t found = watch.found(read);
      const StateId after = found >= 0 ? next[static_cast<size_t>(found)] : watch.after(read);
      add_edge(edges, byte, nothing_yet && is_space(byte) ? first : after);
    }
    return edges;
  };
  for (const auto& [prefix, state] : watch.states())
    b.bind(state, b.any_of({b.bytes(edges_after(prefix, false)), b.done()}));
  if (!brace) return watch.start();
  b.bind(first, b.any_of({b.bytes(edges_after("", true)), *brace, b.done()}));
  return first;
}

}  // namespace

StateId text_without(Builder& b, const std::vector<std::string>& forbidden, StateId next,
                     std::optional<StateId> brace) {
  const Watch watch(b, forbidden);
  const StateId longer = character(b, {{0x80, kCharMax}}, Spelling::plain, watch.start());
  const StateId first = brace ? b.later() : -1;
  const auto edges_after = [&](const std::string& prefix, bool nothing_yet) {
    std::vector<ByteEdge> edges;
    for (int byte = '\t'; byte < 0x80; ++byte) {
      if ((byte < ' ' && byte != '\n' && byte != '\t') || (nothing_yet && byte == '{')) continue;
      const std::string read = prefix + static_cast<char>(byte);
      if (watch.found(read) < 0) add_edge(edges, byte, nothing_yet && is_space(byte) ? first : watch.after(read));
    }
    return edges;
  };
  for (const auto& [prefix, state] : watch.states())
    b.bind(state, b.any_of({b.bytes(edges_after(prefix, false)), longer, next}));
  if (!brace) return watch.start();
  b.bind(first, b.any_of({b.bytes(edges_after("", true)), longer, *brace, next}));
  return first;
}

RuleId free_but_for_names(Builder& b, const std::vector<std::string>& names, CallForm form) {
  b.let_be_cut();
  std::vector<std::string> tagged, quoted;
  for (const std::string& name : names) {
    tagged.push_back(name + ">");
    quoted.push_back(Json(name).dump());
  }
  const StateId text = b.later();
  JsonText j(b);
  const char* key = form == CallForm::bare ? R"("parameters")" : R"("arguments")";
  const auto object = [&](StateId next) {
    const StateId arguments = b.literal(key, j.colon(j.any_object(j.close('}', next))));
    return j.open('{', b.literal("\"name\"", j.colon(b.literals(quoted, j.comma(arguments)))));
  };
  StateId call = 0;
  if (form == CallForm::xml) {
    const StateId rest = bytes_up_to(b, {"</function>", "</tool_call>"}, {text, text});
    call = b.literal("<function=", b.literals(tagged, rest));
  } else {
    call = object(form == CallForm::bare ? b.done() : text);
  }
  const RuleId one = b.rule(object(b.done()));
  const StateId list = j.list(
      '[', ']', 1, kUnbounded, [&](StateId next) { return b.call(one, next); }, text);
  const auto on_a_line = [&](StateId next) { return b.any_of({b.literal("\n", next), next}); };
  const std::vector<std::string> tags = {"<tool_call>", "<TOOLCALL>", "<|python_tag|>"};
  const std::vector<StateId> after = {on_a_line(call), on_a_line(list), call};
  b.bind(text, bytes_up_to(b, tags, after));
  return b.rule(form == CallForm::bare ? bytes_up_to(b, tags, after, call) : text);
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
  const bool many = options.many && options.form != CallForm::bare;
  const StateId calls = b.call(one, b.repeat(further, 0, many ? kCallsMax - 1 : 0, end));
  const StateId begin = list ? b.tag("<TOOLCALL>", b.literal("[", calls)) : calls;
  if (!options.text_first) return b.rule(begin);
  const std::vector<std::string> tags = {"<tool_call>", "<TOOLCALL>", "<|python_tag|>"};
  if (options.form == CallForm::bare) return b.rule(text_without(b, tags, b.done(), begin));
  return b.rule(text_without(b, tags, b.any_of({begin, b.done()})));
}

}  // namespace braid::grammar
