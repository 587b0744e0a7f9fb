#include "serve/constraint.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "grammar/json_schema.h"
#include "grammar/json_text.h"
#include "grammar/regex.h"
#include "grammar/tool_calls.h"
#include "io/ordered_json.h"
#include "serve/api_error.h"
#include "serve/fields.h"
#include "serve/tool_choice.h"
#include "sys/error.h"

namespace braid::serve {
namespace {

using nlohmann::ordered_json;

constexpr size_t kChoicesMax = 10'000;

const ordered_json* field_of(const ordered_json& object, const char* name) {
  const auto at = object.find(name);
  return at == object.end() || at->is_null() ? nullptr : &*at;
}

// A constraint before it is compiled: `where` is the field that asks for it, `key` says what it was made from.
struct Form {
  std::string where, key;
  std::function<grammar::RuleId(grammar::Builder&)> make;
  bool demanded = true;  // false: nobody asked for it, so that an answer goes without where it cannot be enforced
};

Form schema_form(const std::string& where, const ordered_json& given) {
  ordered_json schema = given;
  if (given.is_string())
    schema = io::parse_ordered(given.get_ref<const std::string&>(), where, {},
                               {.keys = io::kOrderedKeysMax, .digits = true});
  return {where, "schema " + dump(schema),
          [where, schema](grammar::Builder& b) { return grammar::json_schema(b, schema, where); }};
}

Form object_form(const std::string& where) {
  return {where, "object", [](grammar::Builder& b) { return b.rule(grammar::JsonText(b).any_object(b.done())); }};
}

Form regex_form(const std::string& where, const ordered_json& given) {
  if (!given.is_string()) refuse(fmt::format("'{}' is not a regular expression", where));
  const std::string pattern = given;
  return {where, "regex " + pattern, [where, pattern](grammar::Builder& b) {
            return b.rule(grammar::Regex::parse(pattern, where).compile(b, grammar::Spelling::plain, b.done()));
          }};
}

Form choice_form(const std::string& where, const ordered_json& given) {
  if (!given.is_array() || given.empty() || given.size() > kChoicesMax)
    refuse(fmt::format("'{}' is not a list of 1 to {} texts", where, kChoicesMax));
  std::vector<std::string> texts;
  for (const ordered_json& text : given) {
    if (!text.is_string() || text.get_ref<const std::string&>().empty())
      refuse(fmt::format("'{}' has an empty text, or what is not a text", where));
    texts.push_back(text);
  }
  return {where, "choice " + given.dump(),
          [texts](grammar::Builder& b) { return b.rule(b.literals(texts, b.done())); }};
}

// OpenAI's, and llama-server's, which has the schema beside either type.
std::optional<Form> response_format_form(const std::string& where, const ordered_json& format) {
  const ordered_json* type = format.is_object() ? field_of(format, "type") : nullptr;
  if (!type) refuse(fmt::format("'{}' is not an object with a type", where));
  if (*type == "text") return std::nullopt;
  const ordered_json* schema = field_of(format, "schema");
  if (*type == "json_object") return schema ? schema_form(where, *schema) : object_form(where);
  if (*type != "json_schema")
    refuse(fmt::format("'{}' has a type that is none of text, json_object and json_schema{}", where, got(*type)));
  if (const ordered_json* inside = field_of(format, "json_schema"); inside && inside->is_object())
    schema = field_of(*inside, "schema");
  if (!schema) refuse(fmt::format("'{}' has no json_schema with a schema", where));
  return schema_form(where, *schema);
}

std::optional<Form> grammar_form(const std::string& where, const ordered_json& given) {
  if (given == "") return std::nullopt;  // so some clients of llama-server say that there is none
  refuse(fmt::format("'{}' is not available here; a schema or a regular expression is", where));
}

// vLLM's kinds of forms, which are fields with the prefix guided_ or of structured_outputs.
std::optional<Form> guided_form(const std::string& kind, const std::string& where, const ordered_json& given) {
  if (kind == "json") return schema_form(where, given);
  if (kind == "regex") return regex_form(where, given);
  if (kind == "choice") return choice_form(where, given);
  if (kind == "json_object" && !given.is_boolean()) refuse(fmt::format("'{}' is not true or false", where));
  if (kind == "json_object") return given == true ? std::optional(object_form(where)) : std::nullopt;
  refuse(fmt::format("'{}' is not available here", where));
}

// An error about a field has it as its param: of a.b the first part.
template <class Read>
auto blaming(const std::string& where, const Read& read) {
  const std::string param = where.substr(0, where.find('.'));
  try {
    return read();
  } catch (const ApiError& e) {
    throw ApiError(e.status(), e.type(), e.what(), e.param().empty() ? param : e.param(), e.code());
  } catch (const Error& e) {
    if (e.fault() != Fault::bad_input) throw;
    refuse(e.what(), param);
  }
}

// Every field that asks for a form; at most one may.
std::optional<Form> format_of(const ordered_json& body) {
  std::vector<Form> forms;
  const auto read = [&](const ordered_json& from, const char* name, const std::string& where, const auto& form_of) {
    const ordered_json* given = field_of(from, name);
    if (!given) return;
    if (std::optional<Form> form = blaming(where, [&] { return std::optional<Form>(form_of(where, *given)); }))
      forms.push_back(std::move(*form));
  };
  read(body, "response_format", "response_format", response_format_form);
  read(body, "json_schema", "json_schema", schema_form);
  read(body, "grammar", "grammar", grammar_form);
  const ordered_json* outputs = field_of(body, "structured_outputs");
  if (outputs && !outputs->is_object()) refuse("'structured_outputs' is not an object", "structured_outputs");
  for (const std::string kind : {"json", "regex", "choice", "json_object", "grammar", "structural_tag"}) {
    const auto form_of = [&](const std::string& where, const ordered_json& given) {
      return guided_form(kind, where, given);
    };
    const std::string guided = "guided_" + kind;
    read(body, guided.c_str(), guided, form_of);
    if (outputs) read(*outputs, kind.c_str(), "structured_outputs." + kind, form_of);
  }
  if (forms.size() > 1)
    refuse("more than one form of the answer is asked for", forms[1].where.substr(0, forms[1].where.find('.')));
  return forms.empty() ? std::nullopt : std::optional(std::move(forms[0]));
}

// `schemas`: of the arguments; without them only those of functions that are strict.
std::vector<grammar::Function> functions_of(const ordered_json& tools, const ToolChoice& choice, bool schemas) {
  std::vector<grammar::Function> out;
  for (const ordered_json& tool : tools) {
    const ordered_json& f = tool["function"];
    if (!choice.allows(f["name"])) continue;
    const ordered_json *parameters = field_of(f, "parameters"), *strict = field_of(f, "strict");
    out.push_back({.name = f["name"],
                   .parameters = parameters ? *parameters : ordered_json(),
                   .any_arguments = !schemas && !(strict && *strict == true)});
  }
  return out;
}

Form names_of(const std::vector<grammar::Function>& functions, grammar::CallForm form) {
  std::set<std::string> names;
  for (const grammar::Function& f : functions) names.insert(f.name);
  const std::vector<std::string> list(names.begin(), names.end());
  return {"tools", "names " + ordered_json(list).dump(),
          [list, form](grammar::Builder& b) { return grammar::free_but_for_names(b, list, form); }, false};
}

// Calls that are required, or that there may be one of only, or of functions that are strict, whose schemas alone are
// asked for where no call is; otherwise only their names are not free.
std::optional<Form> calls_of(const ordered_json& body, const ordered_json& tools, const ToolChoice& choice,
                             bool formatted, engine::LanguageModel& model) {
  if (tools.is_null()) return std::nullopt;
  const bool parallel = Fields(body).boolean("parallel_tool_calls").value_or(true);
  const grammar::CallOptions options{
      .form = model.call_form(), .many = !choice.one && parallel, .text_first = !choice.required && !formatted};
  const std::vector<grammar::Function> functions = functions_of(tools, choice, !options.text_first);
  const bool strict = std::ranges::any_of(functions, [](const grammar::Function& f) { return !f.any_arguments; });
  if (options.text_first && options.many && !strict) return names_of(functions, options.form);
  std::string key = fmt::format("calls {} {} ", options.many, options.text_first);
  for (const grammar::Function& f : functions)
    key += ordered_json::array({f.name, f.any_arguments ? ordered_json("any") : f.parameters}).dump();
  return Form{"tools", key, [functions, options](grammar::Builder& b) {
                return grammar::tool_calls(b, functions, options, "tools");
              }};
}

}  // namespace

std::shared_ptr<const grammar::Constraint> constraint_of(const ordered_json& body, const ordered_json& tools,
                                                         bool thinking, engine::LanguageModel& model) {
  const ToolChoice choice = read_tool_choice(body, tools);
  const std::optional<Form> format = format_of(body);
  const std::optional<Form> calls = calls_of(body, tools, choice, format.has_value(), model);
  if (!format && !calls) return nullptr;
  const bool only_calls = calls && choice.required;
  const auto make = [&](grammar::Builder& b) {
    std::vector<grammar::StateId> ways;
    const auto add = [&](const Form& form) {
      ways.push_back(b.call(blaming(form.where, [&] { return form.make(b); }), b.done()));
    };
    if (calls) add(*calls);
    if (format && !only_calls) add(*format);
    grammar::StateId start = b.any_of(ways);
    // Templates have a newline or two after </think>.
    for (int i = 0; thinking && i < 2; ++i) start = b.any_of({start, b.byte('\n', '\n', start)});
    return b.rule(start);
  };
  const std::string key =
      fmt::format("{} {}\n{}\n{}", thinking, only_calls, calls ? calls->key : "", format ? format->key : "");
  const std::string where = format && !only_calls ? format->where : calls->where;
  try {
    return blaming(where, [&] { return model.grammars().get(key, where, make); });
  } catch (const ApiError&) {
    if (format || calls->demanded) throw;
    return nullptr;
  }
}

}  // namespace braid::serve
