#include "serve/openai.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "engine/conversation.h"
#include "engine/reasoning.h"
#include "engine/think_tags.h"
#include "serve/api_error.h"
#include "serve/chat_messages.h"
#include "serve/template_form.h"
#include "sys/error.h"

namespace braid::serve {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kTokensMax = int64_t{1} << 30;
constexpr const char* kSpace = " \t\r\n";

// A function's name, and parameters that are an object's schema: also where no call will be asked for.
void check_function(const ordered_json& tool, size_t name_max) {
  constexpr const char* kNameOf = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
  const auto function = tool.find("function");
  if (function == tool.end() || !function->is_object() || !function->contains("name") ||
      !(*function)["name"].is_string())
    refuse("a tool is not a function with a name", "tools");
  const std::string name = (*function)["name"];
  if (name.empty() || name.size() > name_max || name.find_first_not_of(kNameOf) != name.npos)
    refuse(fmt::format("the name of a tool is not 1 to {} of a-z, A-Z, 0-9, _ and -: {}", name_max,
                       ordered_json(printable(name)).dump()),
           "tools");
  const ordered_json* parameters = Fields(*function).find("parameters");
  if (!parameters) return;
  if (!parameters->is_object())
    refuse(fmt::format("the parameters of tool {} are not an object: a JSON Schema is needed", name), "tools");
  const ordered_json* type = Fields(*parameters).find("type");
  const auto is_object = [](const ordered_json& t) { return t == "object"; };
  if (type && !is_object(*type) && !(type->is_array() && std::ranges::any_of(*type, is_object)))
    refuse(fmt::format("the parameters of tool {} have a type that is not \"object\"", name), "tools");
  // Keywords that cannot be enforced may pass where no call is held to them; what is no schema in any draft may not.
  const ordered_json *properties = Fields(*parameters).find("properties"),
                     *required = Fields(*parameters).find("required");
  const auto is_schema = [](const ordered_json& p) { return p.is_object() || p.is_boolean(); };
  const bool none = properties && properties->is_array() && properties->empty();  // an empty object, as PHP writes it
  if (properties && !none && !(properties->is_object() && std::ranges::all_of(*properties, is_schema)))
    refuse(fmt::format("the 'properties' of tool {} are not an object of schemas", name), "tools");
  const auto is_name = [](const ordered_json& n) { return n.is_string(); };
  if (required && !(required->is_array() && std::ranges::all_of(*required, is_name)))
    refuse(fmt::format("'required' of tool {} is not a list of names", name), "tools");
}

// The functions among the tools; others, which a hosted model would run itself, are skipped.
ordered_json functions_of(const Fields& f, size_t name_max, std::set<std::string>& skipped) {
  const ordered_json *tools = f.find("tools"), *choice = f.find("tool_choice");
  if (!tools) return {};
  if (!tools->is_array()) refuse("'tools' is not a list of functions", "tools");
  const bool none = choice && *choice == "none";
  ordered_json out = ordered_json::array();
  for (const ordered_json& tool : *tools) {
    if (!tool.is_object()) refuse("a tool is not an object", "tools");
    const auto type = tool.find("type");
    if (type != tool.end() && type->is_string() && *type != "function") {
      if (!none) skipped.insert(type->get<std::string>());
      continue;
    }
    check_function(tool, name_max);
    out.push_back(tool);
  }
  return none || out.empty() ? ordered_json() : out;
}

// How the template is to be used.
struct Rendering {
  std::optional<bool> think{};
  ordered_json variables = ordered_json::object();
  bool nonempty = false;  // of Asked
};

void set_effort(Rendering& out, const ordered_json& effort, const std::string& where) {
  constexpr const char* kEfforts[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
  if (std::ranges::find(kEfforts, effort) == std::end(kEfforts))
    refuse(fmt::format("'{}' is not none, minimal, low, medium, high, xhigh or max{}", where, got(effort)),
           where.substr(0, where.find('.')));
  out.think = effort != "none";
  out.variables.erase("reasoning_effort");
  if (*out.think) out.variables["reasoning_effort"] = effort;
}

// As OpenRouter has it: {"effort"}, or {"enabled"}.
void read_reasoning(Rendering& out, const ordered_json& reasoning) {
  if (!reasoning.is_object()) refuse("'reasoning' is not an object", "reasoning");
  const Fields f(reasoning);
  if (const ordered_json* effort = f.find("effort")) set_effort(out, *effort, "reasoning.effort");
  const ordered_json* enabled = f.find("enabled");
  if (enabled && !enabled->is_boolean()) refuse("'reasoning.enabled' is not true or false", "reasoning");
  if (enabled) out.think = enabled->get<bool>();
}

// As DeepSeek has it: {"type": "enabled" or "disabled"}.
void read_thinking(Rendering& out, const ordered_json& thinking) {
  constexpr const char* kTypes[] = {"enabled", "adaptive", "disabled"};
  const ordered_json* type = thinking.is_object() ? Fields(thinking).find("type") : nullptr;
  if (!type || std::ranges::find(kTypes, *type) == std::end(kTypes))
    refuse(
        "'thinking' is not an object with a type that is enabled, adaptive or disabled" + got(type ? *type : thinking),
        "thinking");
  out.think = *type != "disabled";
}

// The later wins.
Rendering rendering_of(const Fields& f) {
  Rendering out;
  out.nonempty = f.boolean("force_nonempty_content").value_or(false);
  if (const ordered_json* effort = f.find("reasoning_effort")) set_effort(out, *effort, "reasoning_effort");
  if (const ordered_json* reasoning = f.find("reasoning")) read_reasoning(out, *reasoning);
  if (const ordered_json* thinking = f.find("thinking")) read_thinking(out, *thinking);
  if (const auto given = f.boolean("enable_thinking")) out.think = given;
  if (const ordered_json* variables = f.find("chat_template_kwargs")) {
    if (!variables->is_object()) refuse("'chat_template_kwargs' is not an object", "chat_template_kwargs");
    const ordered_json* effort = Fields(*variables).find("reasoning_effort");  // the template's own words, or none
    if (effort && effort->is_string()) out.think = *effort != "none";
    if (const auto given = Fields(*variables).boolean("enable_thinking")) out.think = given;
    out.nonempty = Fields(*variables).boolean("force_nonempty_content").value_or(out.nonempty);
    for (const char* own : {"messages", "tools", "add_generation_prompt"}) {
      if (variables->contains(own))
        refuse(fmt::format("'chat_template_kwargs' cannot hold '{}'", own), "chat_template_kwargs");
    }
    out.variables.update(*variables);
    out.variables.erase("enable_thinking");
    out.variables.erase("force_nonempty_content");
  }
  return out;
}

// A limit on thinking: the request's, else the server's. It ends at the end of a line, within an eighth more, and
// leaves a quarter of the answer's tokens for what follows it.
void limit_thinking(const Fields& f, Asked& asked, engine::LanguageModel& model, const Defaults& defaults) {
  const int64_t given = f.integer("thinking_token_budget", -1, kTokensMax).value_or(defaults.thinking_budget);
  engine::GenerateOptions& generate = asked.work.request.generate;
  if (given < 0 || generate.thinking == engine::Thinking::none) return;
  const int64_t room = generate.tokens_max - generate.tokens_max / 4, grace = std::min(given, room) / 8;
  generate.budget = model.reasoning_budget(std::min(given, room - grace), grace);
}

// The last message is to be continued; the text so far.
std::optional<std::string> continued_text(const Fields& f, const ordered_json& messages) {
  if (!f.boolean("continue_final_message").value_or(false)) {
    f.only("add_generation_prompt", true);
    return std::nullopt;
  }
  if (f.boolean("add_generation_prompt").value_or(false))
    refuse("'add_generation_prompt' is true, and so is 'continue_final_message'", "add_generation_prompt");
  const ordered_json& last = messages.back();
  if (last["role"] != "assistant" || last.contains("tool_calls"))
    refuse("the last message is not an assistant's text, which alone can be continued", "messages");
  const std::string text = last["content"].get<std::string>();
  if (text.find_first_not_of(kSpace) == text.npos) refuse("the last message has no text to continue", "messages");
  return text;
}

// The prompt up to the end of the last message's text. A mark behind the text shows where that is: the text alone could
// occur in what the template adds, too. Templates may trim it.
std::string render_continued(engine::LanguageModel& model, ordered_json& messages, ordered_json& tools,
                             engine::RenderOptions options, const std::string& text) {
  const std::string mark = random_id("continue-");
  messages.back()["content"] = text + mark;
  options.answer_next = false;
  std::string prompt = render_in_form(model, messages, tools, options);
  auto& last = messages.back()["content"].get_ref<std::string&>();
  last.resize(last.size() - mark.size());
  const size_t end = prompt.rfind(mark), first = text.find_first_not_of(kSpace);
  if (end != prompt.npos) prompt.resize(end);
  if (end == prompt.npos || !prompt.ends_with(text.substr(first)))
    refuse("the chat template rewrites the last message, which cannot be continued then", "messages");
  return prompt;
}

bool is_thinking(const std::string& text) {
  const size_t open = text.rfind("<think>"), closed = text.rfind("</think>");
  return open != text.npos && (closed == text.npos || closed < open);
}

}  // namespace

Asked read_chat(const std::string& body, engine::LanguageModel& model, const Defaults& defaults) {
  return read_chat_json(parse_body(body), model, defaults);
}

Asked read_chat_json(const ordered_json& json, engine::LanguageModel& model, const Defaults& defaults,
                     const ChatRules& rules) {
  const Fields f(json);
  Asked asked = begin(f, model, defaults, "chatcmpl-");
  asked.logprobs = f.boolean("logprobs").value_or(false);
  const int64_t alternatives = f.integer("top_logprobs", 0, 20).value_or(0);
  if (alternatives > 0 && !asked.logprobs) refuse("'top_logprobs' needs 'logprobs' to be true", "top_logprobs");
  if (asked.logprobs) asked.work.request.generate.logprobs = alternatives;
  (void)f.boolean("parallel_tool_calls");  // read in constraint_of, for requests with tools
  ordered_json messages = chat_messages(f, asked.skipped_tools);
  const std::optional<std::string> continued = continued_text(f, messages);
  asked.tools = functions_of(f, rules.name_max, asked.skipped_tools);
  const Rendering rendering = rendering_of(f);
  asked.nonempty = rendering.nonempty;
  engine::RenderOptions options{.think = rendering.think, .variables = &rendering.variables, .think_if_possible = true};
  ordered_json tools = asked.tools;  // as the template takes them
  const std::string prompt = continued ? render_continued(model, messages, tools, options, *continued)
                                       : render_in_form(model, messages, tools, options);
  options.tools = tools.is_null() ? nullptr : &tools;
  engine::Thinking& thinking = asked.work.request.generate.thinking;
  if (!continued)
    thinking = model.thinking_after(prompt, rendering.think);
  else if (is_thinking(*continued))
    thinking = engine::Thinking::open;
  // What is added to a text begins in its middle: its first newlines are part of it, and no <think> opens there.
  asked.work.splits_thinking = !continued || thinking == engine::Thinking::open;
  if (asked.work.splits_thinking) {
    const auto token = [&](std::string_view tag) { return model.tokenizer().token_to_id(tag).value_or(-1); };
    asked.work.request.generate.think_begin = token(engine::kThinkBegin);
    asked.work.request.generate.think_end = token(engine::kThinkEnd);
  }
  text::Tokenizer::Memo memo;
  asked.work.request.prompt = model.tokenizer().encode(prompt, false, memo);
  const auto tokens = f.integer("max_completion_tokens", 1, kTokensMax), older = f.integer("max_tokens", 1, kTokensMax);
  if (!rules.limited) return asked;
  limit_tokens(asked, tokens.value_or(older.value_or(kTokensMax)), model);
  limit_thinking(f, asked, model, defaults);
  constrain(asked, json, model);
  asked.work.follows_think = engine::ends_in_closed_think(prompt) && !asked.work.request.generate.constraint;
  asked.work.request.marks = engine::marks_of(model, messages, options, asked.work.request.prompt, memo);
  return asked;
}

}  // namespace braid::serve
