#include "text/template.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "io/gguf.h"
#include "io/ordered_json.h"
#include "sys/mapped_file.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_lexer.h"
#include "text/jinja_parser.h"
#include "text/tokenizer_config.h"

namespace braid::text {

using nlohmann::ordered_json;

TemplateError::TemplateError(Kind kind, std::string_view name, int64_t line, const std::string& text)
    : Error(Fault::bad_input, fmt::format("[template] {} line {}: {}", printable(name), line, printable(text))),
      kind_(kind),
      line_(line),
      text_(text) {}

std::string_view TemplateError::kind_name() const {
  constexpr std::string_view kNames[] = {"template", "undefined", "syntax", "type"};
  return kNames[static_cast<size_t>(kind_)];
}

struct ChatTemplate::State {
  std::string name;
  jinja::Body body;
  std::optional<jinja::Body> tool_use;
  std::map<std::string, std::string> tokens;  // bos_token, ...
  std::set<std::string, std::less<>> names;   // of variables, attributes and functions
  std::vector<std::string> literals;          // text, and strings in expressions

  void note_source(std::string_view source);
};

// Of a source that has been parsed.
void ChatTemplate::State::note_source(std::string_view source) {
  for (jinja::Token& token : jinja::tokenize(source)) {
    if (token.type == jinja::Token::Type::name) names.insert(std::move(token.text));
    if (token.type == jinja::Token::Type::data) literals.push_back(std::move(token.text));
    if (token.type == jinja::Token::Type::constant && token.value.is(jinja::Kind::text))
      literals.emplace_back(token.value.str());
  }
}

bool ChatTemplate::reads(std::string_view name) const { return state_->names.contains(name); }
bool ChatTemplate::mentions(std::string_view text) const {
  return std::any_of(state_->literals.begin(), state_->literals.end(),
                     [text](const std::string& literal) { return literal.find(text) != std::string::npos; });
}

ChatTemplate::ChatTemplate(std::unique_ptr<State> state) : state_(std::move(state)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

namespace {

jinja::Body parse_body(std::string_view source, const std::string& name) {
  try {
    return jinja::parse(source);
  } catch (const jinja::SyntaxError& e) {
    throw TemplateError(TemplateError::Kind::syntax, name, e.line, e.text);
  }
}

jinja::Value to_value(const ordered_json& json, int depth = 0) {
  using jinja::Value;
  if (depth > jinja::kDepthMax) jinja::raise_type(fmt::format("the input nests more than {} deep", jinja::kDepthMax));
  switch (json.type()) {
    case ordered_json::value_t::boolean:
      return json.get<bool>();
    case ordered_json::value_t::number_float:
      return json.get<double>();
    case ordered_json::value_t::number_integer:
      return json.get<int64_t>();
    case ordered_json::value_t::number_unsigned:
      return Value::whole(json.dump());  // ids may be larger than the integers here
    case ordered_json::value_t::binary:
      return Value::whole(io::digits_of(json).value_or("0"));
    case ordered_json::value_t::string:
      return Value(json.get_ref<const std::string&>());
    case ordered_json::value_t::array: {
      jinja::Values items;
      for (const ordered_json& item : json) items.push_back(to_value(item, depth + 1));
      return Value::list(std::move(items));
    }
    case ordered_json::value_t::object: {
      auto dict = std::make_shared<jinja::Dict>();
      for (const auto& [key, value] : json.items()) dict->set(Value(key), to_value(value, depth + 1));
      return std::shared_ptr<const jinja::Dict>(std::move(dict));
    }
    default:
      return Value::none();
  }
}

}  // namespace

ChatTemplate ChatTemplate::parse(std::string_view source, std::string name) {
  auto state = std::make_unique<State>();
  state->body = parse_body(source, name);
  state->name = std::move(name);
  state->note_source(source);
  return ChatTemplate(std::move(state));
}

ChatTemplate ChatTemplate::load(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error) && !io::is_gguf(path)) {
    const sys::MappedFile file(path);
    return parse({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, path.filename().string());
  }
  const TokenizerConfig config = TokenizerConfig::load(path);
  if (!config.chat_template) {
    const bool gguf = io::is_gguf(path);
    fail("template",
         {.what = gguf ? "the file has no chat template" : "the folder has no chat template",
          .got = printable(path.string()),
          .expected = gguf ? "tokenizer.chat_template"
                           : "chat_template.jinja, or a \"default\" chat_template in tokenizer_config.json"});
  }
  auto state = std::make_unique<State>();
  state->name = config.template_name;
  state->body = parse_body(*config.chat_template, state->name);
  state->note_source(*config.chat_template);
  for (const NamedTemplate& named : config.named_templates) {
    if (named.name == "tool_use") state->tool_use = parse_body(named.source, state->name);
  }
  state->tokens = config.special_tokens;
  const std::pair<const char*, const std::optional<std::string>&> tokens[] = {{"bos_token", config.bos_token},
                                                                              {"eos_token", config.eos_token},
                                                                              {"pad_token", config.pad_token},
                                                                              {"unk_token", config.unk_token}};
  for (const auto& [name, token] : tokens) {
    if (token) state->tokens.insert_or_assign(name, *token);
  }
  return ChatTemplate(std::move(state));
}

std::string ChatTemplate::render(const ordered_json& variables, const std::tm& now, const Limits& limits) const {
  int line = 0;
  try {
    std::map<std::string, jinja::Value, std::less<>> names{{"tools", jinja::Value::none()},
                                                           {"documents", jinja::Value::none()}};
    for (const auto& [name, token] : state_->tokens) names.insert_or_assign(name, jinja::Value(token));
    for (const auto& [name, value] : variables.items()) names.insert_or_assign(name, to_value(value));
    const bool tools = state_->tool_use && !names["tools"].is(jinja::Kind::none);
    jinja::Interpreter interpreter(std::move(names), now, limits);
    try {
      return interpreter.run(tools ? *state_->tool_use : state_->body);
    } catch (const jinja::Raised&) {
      line = interpreter.line();
      throw;
    }
  } catch (const jinja::Raised& e) {
    throw TemplateError(e.kind, state_->name, line, e.text);
  }
}

}  // namespace braid::text
