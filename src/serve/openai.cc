#include "serve/openai.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/reasoning.h"
#include "serve/api_error.h"
#include "sys/error.h"

namespace braid::serve {
namespace {

using nlohmann::ordered_json;

// A message as templates take it: parts of text become one string, arguments that are text become objects.
ordered_json message_of(const ordered_json& m) {
  if (!m.is_object() || !m.contains("role") || !m["role"].is_string()) refuse("a message has no role");
  ordered_json out = m;
  if (out["role"] == "developer") out["role"] = "system";
  ordered_json& content = out["content"];
  if (content.is_array()) {
    std::string text;
    for (const ordered_json& part : content) {
      if (!part.is_object() || !part.contains("text") || !part["text"].is_string())
        refuse("a part of a message is not text, and this model reads text alone");
      text += part["text"].get<std::string>();
    }
    content = std::move(text);
  }
  if (content.is_null()) content = "";
  if (!content.is_string()) refuse("the content of a message is neither text nor parts of text");
  if (out.contains("reasoning") && !out.contains("reasoning_content")) out["reasoning_content"] = out["reasoning"];
  if (!out.contains("tool_calls") || !out["tool_calls"].is_array()) return out;
  for (ordered_json& call : out["tool_calls"]) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object())
      refuse("a tool call has no function");
    ordered_json& arguments = call["function"]["arguments"];
    if (arguments.is_string()) arguments = parse_json(arguments.get<std::string>(), "arguments");
    if (!arguments.is_object()) refuse("the arguments of a tool call are not a JSON object");
  }
  return out;
}

ordered_json messages_of(const Fields& f) {
  const ordered_json* list = f.find("messages");
  if (!list || !list->is_array() || list->empty()) refuse("'messages' is not a list of messages");
  ordered_json out = ordered_json::array();
  for (const ordered_json& m : *list) out.push_back(message_of(m));
  return out;
}

ordered_json tools_of(const Fields& f) {
  const ordered_json *tools = f.find("tools"), *choice = f.find("tool_choice");
  if (!tools || (choice && *choice == "none")) return {};
  if (!tools->is_array()) refuse("'tools' is not a list of functions");
  for (const ordered_json& tool : *tools) {
    if (!tool.is_object() || !tool.contains("function") || !tool["function"].is_object() ||
        !tool["function"].contains("name"))
      refuse("a tool is not a function with a name");
  }
  return tools->empty() ? ordered_json() : *tools;
}

// chat_template_kwargs wins over reasoning_effort.
std::optional<bool> think_of(const Fields& f) {
  std::optional<bool> think;
  if (const ordered_json* effort = f.find("reasoning_effort")) {
    constexpr const char* kEfforts[] = {"none", "minimal", "low", "medium", "high", "xhigh"};
    if (std::ranges::find(kEfforts, *effort) == std::end(kEfforts))
      refuse("'reasoning_effort' is not none, minimal, low, medium, high or xhigh");
    think = *effort != "none";
  }
  if (const ordered_json* variables = f.find("chat_template_kwargs")) {
    if (!variables->is_object()) refuse("'chat_template_kwargs' is not an object");
    if (const auto given = Fields(*variables).boolean("enable_thinking")) think = given;
  }
  return think;
}

// Where the state of a conversation is worth keeping: after its instructions, which others may share, and before the
// prompt of the answer, which the next turn may render differently.
std::vector<int64_t> marks_of(engine::LanguageModel& model, const ordered_json& messages, engine::RenderOptions options,
                              const std::vector<int32_t>& prompt) {
  options.answer_next = false;
  std::vector<int64_t> marks;
  const auto mark = [&](const ordered_json& part) {
    try {
      const std::vector<int32_t> ids = model.tokenizer().encode(model.render(part, options), false);
      const auto end = std::mismatch(ids.begin(), ids.end(), prompt.begin(), prompt.end()).first - ids.begin();
      if (end > 0 && end < std::ssize(prompt) && (marks.empty() || end > marks.back())) marks.push_back(end);
    } catch (const Error&) {  // the template takes no such conversation
    }
  };
  if (messages[0]["role"] == "system" && messages.size() > 1) mark(ordered_json::array({messages[0]}));
  mark(messages);
  return marks;
}

}  // namespace

Asked read_chat(const std::string& body, engine::LanguageModel& model, const Defaults& defaults) {
  const ordered_json json = parse_body(body);
  const Fields f(json);
  Asked asked = begin(f, model, defaults, "chatcmpl-");
  asked.logprobs = f.boolean("logprobs").value_or(false);
  if (asked.logprobs) asked.work.request.generate.logprobs = f.integer("top_logprobs", 0, 20).value_or(0);
  const ordered_json messages = messages_of(f);
  asked.tools = tools_of(f);
  const engine::RenderOptions rendering{.think = think_of(f), .tools = asked.tools.is_null() ? nullptr : &asked.tools};
  const std::string prompt = model.render(messages, rendering);
  asked.work.thinking = engine::ends_in_think(prompt);
  asked.work.request.prompt = model.tokenizer().encode(prompt, false);
  const auto tokens = f.integer("max_completion_tokens", 1, int64_t{1} << 30);
  const auto older = f.integer("max_tokens", 1, int64_t{1} << 30);
  limit_tokens(asked, tokens.value_or(older.value_or(int64_t{1} << 30)), model);
  if (const auto budget = f.integer("thinking_token_budget", 0, int64_t{1} << 30); budget && asked.work.thinking)
    asked.work.request.generate.budget = model.reasoning_budget(*budget);
  constrain(asked, json, model);
  asked.work.request.marks = marks_of(model, messages, rendering, asked.work.request.prompt);
  return asked;
}

}  // namespace braid::serve
