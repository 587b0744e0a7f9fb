#include "serve/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "io/ordered_json.h"
#include "serve/api_error.h"
#include "serve/chat_messages.h"
#include "serve/openai.h"
#include "sys/error.h"

namespace braid::serve {
namespace {

constexpr size_t kNameMax = 128;  // characters of a tool's name

using nlohmann::ordered_json;

// Of a call in an answer, numbers with all their digits; null where the text is not JSON.
ordered_json input_of_call(const std::string& text) {
  try {
    return io::parse_ordered(text, "input", {}, {.keys = io::kOrderedKeysMax, .digits = true});
  } catch (const Error&) {
    return nullptr;
  }
}

std::string type_of(const ordered_json& block) {
  const bool typed = block.is_object() && block.contains("type") && block["type"].is_string();
  if (!typed) refuse("a block of content has no type", "messages");
  return block["type"].get<std::string>();
}

std::string field(const ordered_json& block, const char* key) {
  const auto at = block.find(key);
  if (at == block.end() || !at->is_string())
    refuse(fmt::format("a block of type {} has no text '{}'", type_of(block), key), "messages");
  return at->get<std::string>();
}

// The text of a tool's result: a string, or blocks of text; images and the like cannot be read.
std::string result_of(const ordered_json& block) {
  const auto content = block.find("content");
  if (content == block.end() || content->is_null()) return "";
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) refuse("the content of a tool_result is neither text nor blocks", "messages");
  std::string out;
  for (const ordered_json& part : *content) {
    if (type_of(part) == "text")
      out += field(part, "text");
    else if (type_of(part) != "tool_reference")
      refuse(fmt::format("a block of type {} in a tool_result: this model reads text alone", type_of(part)),
             "messages");
  }
  return out;
}

// A message of Anthropic's becomes messages of chat: results of tools come first, each as its own.
void add_message(const ordered_json& m, ordered_json& out) {
  if (!m.is_object() || !m.contains("role") || !m["role"].is_string()) refuse("a message has no role", "messages");
  ordered_json turn = {{"role", m["role"]}, {"content", ""}};
  const ordered_json content = m.value("content", ordered_json());
  if (content.is_string() || content.is_null()) {
    if (content.is_string()) turn["content"] = content;
    return out.push_back(std::move(turn));
  }
  if (!content.is_array()) refuse("the content of a message is neither text nor blocks", "messages");
  ordered_json parts = ordered_json::array();
  bool results = false;
  for (const ordered_json& block : content) {
    const std::string type = type_of(block);
    if (type == "text") {
      parts.push_back({{"type", "text"}, {"text", field(block, "text")}});
    } else if (type == "thinking") {
      turn["reasoning_content"] = turn.value("reasoning_content", "") + field(block, "thinking");
    } else if (type == "tool_use") {
      turn["tool_calls"].push_back(
          {{"id", field(block, "id")},
           {"type", "function"},
           {"function",
            {{"name", field(block, "name")}, {"arguments", block.value("input", ordered_json::object())}}}});
    } else if (type == "tool_result") {
      out.push_back({{"role", "tool"}, {"tool_call_id", field(block, "tool_use_id")}, {"content", result_of(block)}});
      results = true;
    } else if (type == "image" || type == "document") {
      refuse(fmt::format("a block of type {}: this model reads text alone", type), "messages");
    }  // what Anthropic's own tools leave has nothing to say here
  }
  if (results && parts.empty()) return;
  turn["content"] = std::move(parts);
  out.push_back(std::move(turn));
}

ordered_json messages_of_blocks(const Fields& f) {
  ordered_json out = ordered_json::array();
  if (const ordered_json* system = f.find("system")) {
    if (!system->is_string() && !system->is_array()) refuse("'system' is neither text nor blocks of text", "system");
    out.push_back({{"role", "system"}, {"content", *system}});
  }
  for (const ordered_json& m : message_list(f)) add_message(m, out);
  return out;
}

// A tool that is not the client's own: it has a type, and Anthropic runs it itself. Chat skips it.
bool is_foreign(const ordered_json& tool) {
  if (!tool.is_object() || Fields(tool).find("input_schema")) return false;
  const ordered_json* type = Fields(tool).find("type");
  return type && *type != "custom";
}

ordered_json tools_of_messages(const ordered_json& tools) {
  if (!tools.is_array()) return tools;
  ordered_json out = ordered_json::array();
  for (const ordered_json& tool : tools) {
    if (!tool.is_object()) refuse("a tool is not an object", "tools");
    const ordered_json* schema = Fields(tool).find("input_schema");
    if (is_foreign(tool)) {
      out.push_back(tool);
      continue;
    }
    const std::string name = Fields(tool).text("name").value_or("");
    if (name.empty()) refuse("a tool has no 'name'", "tools");
    if (!schema) refuse(fmt::format("tool {} has no 'input_schema'", ordered_json(name).dump()), "tools");
    if (!schema->is_object())
      refuse(fmt::format("the 'input_schema' of tool {} is not an object", ordered_json(name).dump()), "tools");
    ordered_json function = {{"name", name}};
    if (tool.contains("description")) function["description"] = tool["description"];
    function["parameters"] = *schema;
    if (tool.contains("strict")) function["strict"] = tool["strict"];
    out.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return out;
}

// What `auto`, `any`, `tool` and `none` are called in chat.
void set_choice(const Fields& f, ordered_json& chat) {
  const ordered_json* choice = f.find("tool_choice");
  if (!choice) return;
  constexpr const char* kTypes[] = {"auto", "any", "tool", "none"};
  const ordered_json* type = choice->is_object() ? Fields(*choice).find("type") : nullptr;
  if (!type || std::ranges::find(kTypes, *type) == std::end(kTypes))
    refuse("'tool_choice' is not an object with a type that is auto, any, tool or none", "tool_choice");
  chat["tool_choice"] = *type == "any" ? ordered_json("required") : *type;
  if (*type == "tool") {
    const std::string name = Fields(*choice).text("name").value_or("");
    chat["tool_choice"] = {{"type", "function"}, {"function", {{"name", name}}}};
    const ordered_json* tools = f.find("tools");
    const auto skipped = [&](const ordered_json& tool) {
      return is_foreign(tool) && Fields(tool).text("name").value_or("") == name;
    };
    if (tools && tools->is_array() && std::ranges::any_of(*tools, skipped)) chat["tool_choice"] = "auto";
  }
  if (Fields(*choice).boolean("disable_parallel_tool_use").value_or(false)) chat["parallel_tool_calls"] = false;
}

// `output_config`: the form of the answer, which was `output_format` once, and the effort of thinking.
struct OutputConfig {
  std::string effort = "medium";
  const ordered_json* format = nullptr;
  const char* format_name = "response_format";  // the field it came in
};

OutputConfig output_config_of(const Fields& f) {
  OutputConfig out;
  if (const ordered_json* config = f.find("output_config")) {
    if (!config->is_object()) refuse("'output_config' is not an object", "output_config");
    const Fields given(*config);
    out.format = given.find("format");
    if (out.format) out.format_name = "output_config.format";
    if (const ordered_json* effort = given.find("effort")) {
      constexpr const char* kEfforts[] = {"low", "medium", "high", "xhigh", "max"};
      if (std::ranges::find(kEfforts, *effort) == std::end(kEfforts))
        refuse("'output_config.effort' is not low, medium, high, xhigh or max" + got(*effort), "output_config.effort");
      out.effort = *effort;
    }
  }
  if (const ordered_json* older = f.find("output_format")) {
    if (out.format) refuse("'output_format' is given, and so is 'output_config.format'", "output_format");
    out.format = older;
    out.format_name = "output_format";
  }
  if (!out.format) return out;
  const std::string name = out.format_name;
  if (!out.format->is_object()) refuse(fmt::format("'{}' is not an object", name), name);
  const ordered_json* type = Fields(*out.format).find("type");
  if (!type || *type != "json_schema")
    refuse(fmt::format("'{}' has a type that is not \"json_schema\"{}", name, type ? got(*type) : ""), name);
  const ordered_json* schema = Fields(*out.format).find("schema");
  if (!schema || !schema->is_object()) refuse(fmt::format("'{}' has no 'schema', an object", name), name);
  return out;
}

// Thinking is off unless it is asked for, as with Anthropic's own models; chat_template_kwargs wins.
void set_thinking(const Fields& f, const std::string& effort, ordered_json& chat) {
  bool on = false;
  if (const ordered_json* thinking = f.find("thinking")) {
    constexpr const char* kTypes[] = {"enabled", "adaptive", "disabled"};
    const ordered_json* type = thinking->is_object() ? Fields(*thinking).find("type") : nullptr;
    if (!type || std::ranges::find(kTypes, *type) == std::end(kTypes))
      refuse("'thinking' is not an object with a type that is enabled, adaptive or disabled" +
                 got(type ? *type : *thinking),
             "thinking");
    on = *type != "disabled";
    if (const auto budget = Fields(*thinking).integer("budget_tokens", 0, int64_t{1} << 30); budget && on)
      chat["thinking_token_budget"] = *budget;
  }
  chat["reasoning_effort"] = on ? effort : "none";
}

ordered_json chat_of_messages(const ordered_json& body, const Fields& f, const OutputConfig& output) {
  ordered_json chat = body;
  for (const char* key :
       {"messages", "system", "tools", "tool_choice", "thinking", "stop_sequences", "stop", "metadata", "output_config",
        "output_format", "n", "logprobs", "top_logprobs", "add_generation_prompt"})
    chat.erase(key);
  chat["messages"] = messages_of_blocks(f);
  const ordered_json& last = chat["messages"].back();
  const bool thought = last.contains("reasoning_content") && last["content"].empty();  // and said nothing yet
  const bool continues = last["role"] == "assistant" && !last.contains("tool_calls") && !thought;
  chat["continue_final_message"] = continues;
  if (const ordered_json* stops = f.find("stop_sequences")) chat["stop"] = *stops;
  if (const ordered_json* tools = f.find("tools")) chat["tools"] = tools_of_messages(*tools);
  set_choice(f, chat);
  set_thinking(f, output.effort, chat);
  if (output.format) chat["response_format"] = *output.format;
  return chat;
}

class MessagesStream final : public BlockStream {
 public:
  explicit MessagesStream(Asked asked) : BlockStream(std::move(asked)) {}

  std::string begin() override { return ""; }  // message_start says how much was cached, which is not known yet
  std::string finish(const std::vector<const Outcome*>& outcomes) override {
    const ordered_json message = whole(outcomes);
    const ordered_json delta = {{"stop_reason", message["stop_reason"]}, {"stop_sequence", message["stop_sequence"]}};
    return named_event({{"type", "message_delta"}, {"delta", delta}, {"usage", message["usage"]}}) +
           named_event({{"type", "message_stop"}});
  }
  std::string fail(int status, const std::string&, const std::string& message) override {
    return named_event(messages_error_json(status, message));
  }
  ordered_json whole(const std::vector<const Outcome*>& outcomes) override {
    const Outcome& outcome = *outcomes[0];
    ordered_json out = message_json(outcome.cached_tokens, std::ssize(outcome.generated.ids));
    const bool length = outcome.generated.finish == engine::Finish::length;
    out["stop_reason"] = length ? "max_tokens" : outcome.stopped ? "stop_sequence" : called() ? "tool_use" : "end_turn";
    if (!length && outcome.stopped) out["stop_sequence"] = outcome.stop;
    return out;
  }

 protected:
  std::string start(int64_t cached_tokens) override {
    return named_event({{"type", "message_start"}, {"message", message_json(cached_tokens, 0)}}) +
           named_event({{"type", "ping"}});
  }
  std::string open(Block block, const std::string& name) override {
    text_.clear();
    if (block == Block::reasoning)
      block_ = {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
    else if (block == Block::text)
      block_ = {{"type", "text"}, {"text", ""}};
    else
      block_ = {{"type", "tool_use"}, {"id", random_id("toolu_")}, {"name", name}, {"input", ordered_json::object()}};
    return named_event({{"type", "content_block_start"}, {"index", index_}, {"content_block", block_}});
  }
  std::string add(Block block, const std::string& text) override {
    if (text.empty()) return "";
    text_ += text;
    if (block == Block::reasoning) return delta({{"type", "thinking_delta"}, {"thinking", text}});
    if (block == Block::text) return delta({{"type", "text_delta"}, {"text", text}});
    return delta({{"type", "input_json_delta"}, {"partial_json", text}});
  }
  std::string close(Block block, bool) override {
    std::string out;
    bool whole = true;
    if (block == Block::reasoning) {
      const std::string signature = random_id("sig_");
      block_["thinking"] = text_;
      block_["signature"] = signature;
      out = delta({{"type", "signature_delta"}, {"signature", signature}});
    } else if (block == Block::text) {
      block_["text"] = text_;
    } else {
      block_["input"] = input_of_call(text_);
      whole = block_["input"].is_object();  // one that was cut has no form in a whole answer
    }
    out += named_event({{"type", "content_block_stop"}, {"index", index_++}});
    if (whole) content_.push_back(std::exchange(block_, {}));
    return out;
  }

 private:
  std::string delta(const ordered_json& data) const {
    return named_event({{"type", "content_block_delta"}, {"index", index_}, {"delta", data}});
  }
  ordered_json message_json(int64_t cached, int64_t answer) const {
    const int64_t prompt = std::ssize(asked().work.request.prompt);
    return {{"id", asked().id},
            {"type", "message"},
            {"role", "assistant"},
            {"model", asked().model},
            {"content", content_},
            {"stop_reason", nullptr},
            {"stop_sequence", nullptr},
            {"usage",
             {{"input_tokens", prompt - cached},
              {"cache_creation_input_tokens", 0},
              {"cache_read_input_tokens", cached},
              {"output_tokens", answer}}}};
  }

  ordered_json content_ = ordered_json::array(), block_;
  std::string text_;  // of the block
  int64_t index_ = 0;
};

}  // namespace

Asked read_messages(const std::string& body, engine::LanguageModel& model, const Defaults& defaults, bool limited) {
  const ordered_json json = parse_body(body);
  const Fields f(json);
  const OutputConfig output = output_config_of(f);
  const ordered_json chat = chat_of_messages(json, f, output);
  Asked asked = said_of("stop", "stop_sequences", [&] {
    return said_of("response_format", output.format_name,
                   [&] { return read_chat_json(chat, model, defaults, {.limited = limited, .name_max = kNameMax}); });
  });
  asked.id = random_id("msg_");
  return asked;
}

std::unique_ptr<BlockStream> messages_stream(Asked asked) { return std::make_unique<MessagesStream>(std::move(asked)); }

ordered_json messages_error_json(int status, const std::string& message) {
  const char* type = status == 401   ? "authentication_error"
                     : status == 403 ? "permission_error"
                     : status == 404 ? "not_found_error"
                     : status == 413 ? "request_too_large"
                     : status == 429 ? "rate_limit_error"
                     : status == 503 ? "overloaded_error"
                     : status < 500  ? "invalid_request_error"
                                     : "api_error";
  return {{"type", "error"}, {"error", {{"type", type}, {"message", message}}}};
}

}  // namespace braid::serve
