#include "serve/chat_messages.h"

#include <algorithm>
#include <utility>

#include "io/ordered_json.h"
#include "serve/api_error.h"
#include "sys/error.h"

namespace braid::serve {
namespace {

using nlohmann::ordered_json;

// Without lines that are billing headers and the like: they differ in every request.
std::string without_headers(const std::string& text) {
  std::string out;
  for (size_t line = 0, next = 0; line < text.size(); line = next) {
    next = std::min(text.find('\n', line), text.size() - 1) + 1;
    if (text.compare(line, 12, "x-anthropic-") != 0) out.append(text, line, next - line);
  }
  return out;
}

std::string text_of_content(const ordered_json& content, bool system) {
  const auto cleaned = [system](const ordered_json& text) {
    return system ? without_headers(text.get<std::string>()) : text.get<std::string>();
  };
  if (content.is_string()) return cleaned(content);
  if (content.is_null()) return "";
  if (!content.is_array()) refuse("the content of a message is neither text nor parts of text", "messages");
  std::string out;
  for (const ordered_json& part : content) {
    const bool text = part.is_object() && part.contains("text") && part["text"].is_string();
    const bool refusal = part.is_object() && part.contains("refusal") && part["refusal"].is_string();
    if (!text && !refusal && !part.is_string())
      refuse("a part of a message is not text, and this model reads text alone", "messages");
    out += cleaned(part.is_string() ? part : part[text ? "text" : "refusal"]);
  }
  return out;
}

// A call that was cut has arguments that are not JSON, and a model may write others than an object: the next answer is
// given what there is of them.
ordered_json arguments_of(const std::string& text) {
  const ordered_json shown = {{"arguments", text}};
  try {
    ordered_json given = io::parse_ordered(text, "arguments", {}, {.keys = io::kOrderedKeysMax, .digits = true});
    return given.is_object() ? given : shown;
  } catch (const Error&) {
    return shown;
  }
}

// Calls of tools that are no functions.
struct SkippedCalls {
  std::set<std::string>& types;
  std::set<std::string> ids{};  // which results answer

  // Takes note of a call; false: it is a function's.
  bool take(const ordered_json& call) {
    const ordered_json *type = Fields(call).find("type"), *function = Fields(call).find("function"),
                       *id = Fields(call).find("id");
    const bool other = type && type->is_string() && *type != "function";
    const std::string name = id && id->is_string() ? id->get<std::string>() : "";
    if (!other && function && function->is_object()) return ids.erase(name), false;
    types.insert(other ? type->get<std::string>() : "unknown");
    if (!name.empty()) ids.insert(name);
    return true;
  }
  bool answered_by(const ordered_json& message) const {
    const ordered_json* id = Fields(message).find("tool_call_id");
    return message["role"] == "tool" && id && id->is_string() && ids.contains(id->get<std::string>());
  }
};

void read_calls(ordered_json& message, SkippedCalls& skipped) {
  const ordered_json& calls = message["tool_calls"];
  if (!calls.is_array()) refuse("'tool_calls' is not a list", "messages");
  ordered_json kept = ordered_json::array();
  for (ordered_json call : calls) {
    if (!call.is_object()) refuse("a tool call is not an object", "messages");
    if (skipped.take(call)) continue;
    ordered_json& arguments = call["function"]["arguments"];
    if (arguments.is_null() || arguments == "") arguments = ordered_json::object();
    if (arguments.is_string()) arguments = arguments_of(arguments.get<std::string>());
    if (!arguments.is_object()) refuse("the arguments of a tool call are not a JSON object", "messages");
    kept.push_back(std::move(call));
  }
  message.erase("tool_calls");
  if (!kept.empty()) message["tool_calls"] = std::move(kept);
}

ordered_json chat_message(const ordered_json& m, SkippedCalls& skipped) {
  if (!m.is_object() || !m.contains("role") || !m["role"].is_string()) refuse("a message has no role", "messages");
  ordered_json out = m;
  if (out["role"] == "developer") out["role"] = "system";
  if (out["role"] == "function") out["role"] = "tool";
  out["content"] = text_of_content(out["content"], out["role"] == "system");
  const ordered_json *reasoning = Fields(out).find("reasoning"), *named = Fields(out).find("reasoning_content");
  const bool lacks = !named || *named == "";
  if (lacks && reasoning && reasoning->is_string()) out["reasoning_content"] = ordered_json(*reasoning);
  if (out.contains("tool_calls") && out["tool_calls"].is_null()) out.erase("tool_calls");
  if (out.contains("tool_calls")) read_calls(out, skipped);
  return out;
}

void append_text(ordered_json& message, const std::string& more) {
  const std::string text = message["content"].get<std::string>();
  message["content"] = text.empty() || more.empty() ? text + more : text + "\n\n" + more;
}

}  // namespace

const ordered_json& message_list(const Fields& f) {
  const ordered_json* list = f.find("messages");
  if (!list) refuse("there is no 'messages'", "messages");
  if (!list->is_array()) refuse("'messages' is not a list of messages", "messages");
  if (list->empty()) refuse("'messages' is empty", "messages");
  return *list;
}

ordered_json chat_messages(const Fields& f, std::set<std::string>& skipped) {
  SkippedCalls calls{skipped};
  ordered_json out = ordered_json::array();
  for (const ordered_json& m : message_list(f)) {
    ordered_json message = chat_message(m, calls);
    if (calls.answered_by(message)) continue;
    const bool again = out.size() == 1 && out[0]["role"] == "system" && message["role"] == "system";
    if (again)
      append_text(out[0], message["content"]);
    else
      out.push_back(std::move(message));
  }
  return out;
}

}  // namespace braid::serve
