#include "serve/responses.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "engine/logprobs.h"
#include "serve/api_error.h"
#include "serve/openai.h"

namespace braid::serve {
namespace {

using nlohmann::ordered_json;

// The texts of an item's content or output: a string, or parts.
std::string text_of_item(const ordered_json& content) {
  if (content.is_string()) return content.get<std::string>();
  if (content.is_null()) return "";
  if (!content.is_array()) refuse("the content of an item is neither text nor parts of text", "input");
  std::string out;
  for (const ordered_json& part : content) {
    if (!part.is_object()) refuse("a part of an item is not an object", "input");
    const char* key = part.contains("refusal") ? "refusal" : "text";
    if (!part.contains(key) || !part[key].is_string())
      refuse("a part of an item is not text, and this model reads text alone", "input");
    out += part[key].get<std::string>();
  }
  return out;
}

std::string word(const ordered_json& item, const char* key) {
  const auto at = item.find(key);
  return at != item.end() && at->is_string() ? at->get<std::string>() : "";
}

// Input items become messages of chat: reasoning, text and calls that follow each other are one turn of the assistant.
class Turns {
 public:
  void add(const ordered_json& item) {
    if (!item.is_object()) refuse("an item of 'input' is not an object", "input");
    const std::string type = word(item, "type");
    if (type.empty() || type == "message") return message(item);
    if (type == "reasoning") {
      const bool full = item.contains("content") && item["content"].is_array() && !item["content"].empty();
      const ordered_json parts = full ? item["content"] : item.value("summary", ordered_json::array());
      const std::string text = text_of_item(parts);
      if (text.empty()) return;  // encrypted, or left out
      ordered_json& turn = assistant();
      const std::string before = turn.value("reasoning_content", "");
      turn["reasoning_content"] = before + (before.empty() ? "" : "\n") + text;
    } else if (type == "function_call") {
      ordered_json& calls = assistant()["tool_calls"];
      calls.push_back({{"id", word(item, "call_id")},
                       {"type", "function"},
                       {"function", {{"name", word(item, "name")}, {"arguments", word(item, "arguments")}}}});
    } else if (type == "function_call_output") {
      messages_.push_back({{"role", "tool"},
                           {"tool_call_id", word(item, "call_id")},
                           {"content", text_of_item(item.value("output", ordered_json()))}});
    } else if (type == "item_reference") {
      refuse("answers are not kept here: send the items themselves, not references to them", "input");
    }  // calls of tools that OpenAI runs itself have nothing to say here
  }
  ordered_json take() { return std::move(messages_); }
  size_t size() const { return messages_.size(); }

 private:
  void message(const ordered_json& item) {
    const std::string role = word(item, "role");
    if (role.empty()) refuse("a message of 'input' has no role", "input");
    const std::string text = text_of_item(item.value("content", ordered_json()));
    if (role != "assistant") return messages_.push_back({{"role", role}, {"content", text}});
    ordered_json& turn = assistant();
    turn["content"] = word(turn, "content") + text;
  }
  ordered_json& assistant() {
    if (messages_.empty() || messages_.back()["role"] != "assistant")
      messages_.push_back({{"role", "assistant"}, {"content", ""}});
    return messages_.back();
  }

  ordered_json messages_ = ordered_json::array();
};

ordered_json messages_of_items(const Fields& f) {
  Turns turns;
  if (const auto instructions = f.text("instructions"); instructions && !instructions->empty())
    turns.add({{"role", "system"}, {"content", *instructions}});
  const ordered_json* input = f.find("input");
  if (!input) refuse("there is no 'input'", "input");
  const size_t before = turns.size();
  if (input->is_string()) {
    turns.add({{"role", "user"}, {"content", *input}});
  } else if (input->is_array()) {
    for (const ordered_json& item : *input) turns.add(item);
  } else {
    refuse("'input' is neither text nor a list of items", "input");
  }
  if (turns.size() == before) refuse("'input' has no message", "input");
  return turns.take();
}

// Functions in the form of chat; other tools stay as they are, for chat to skip.
ordered_json tools_of_responses(const ordered_json& tools) {
  if (!tools.is_array()) return tools;
  ordered_json out = ordered_json::array();
  for (const ordered_json& tool : tools) {
    const bool flat = tool.is_object() && word(tool, "type") == "function" && !tool.contains("function");
    ordered_json function = flat ? tool : ordered_json::object();
    if (flat) function.erase("type");
    out.push_back(flat ? ordered_json{{"type", "function"}, {"function", std::move(function)}} : tool);
  }
  return out;
}

ordered_json chat_of_responses(const ordered_json& body, const Fields& f) {
  ordered_json chat = body;
  for (const char* key : {"input", "instructions", "text", "reasoning", "max_output_tokens", "top_logprobs", "include",
                          "store", "previous_response_id", "truncation", "n"})
    chat.erase(key);
  chat["messages"] = messages_of_items(f);
  if (const ordered_json* tools = f.find("tools")) chat["tools"] = tools_of_responses(*tools);
  const ordered_json* choice = f.find("tool_choice");
  const std::string chosen = choice && choice->is_object() ? word(*choice, "type") : "none";
  if ((chosen.empty() || chosen == "function") && choice->contains("name"))
    chat["tool_choice"] = {{"type", "function"}, {"function", {{"name", (*choice)["name"]}}}};
  if (const ordered_json* reasoning = f.find("reasoning")) {
    if (!reasoning->is_object()) refuse("'reasoning' is not an object", "reasoning");
    if (const ordered_json* effort = Fields(*reasoning).find("effort")) chat["reasoning_effort"] = *effort;
  }
  const ordered_json* include = f.find("include");
  if (include && !include->is_array()) refuse("'include' is not a list", "include");
  const bool scored = include && std::ranges::find(*include, "message.output_text.logprobs") != include->end();
  const auto alternatives = f.integer("top_logprobs", 0, 20);
  chat["logprobs"] = scored;
  if (scored) chat["top_logprobs"] = alternatives.value_or(0);
  const ordered_json* text = f.find("text");
  if (text && !text->is_object()) refuse("'text' is not an object", "text");
  if (text && text->contains("format")) {
    ordered_json format = (*text)["format"];
    if (format.is_object() && word(format, "type") == "json_schema") {
      ordered_json schema = format;
      schema.erase("type");
      format = {{"type", "json_schema"}, {"json_schema", std::move(schema)}};
    }
    chat["response_format"] = std::move(format);
  }
  if (const auto tokens = f.integer("max_output_tokens", 1, int64_t{1} << 30)) chat["max_completion_tokens"] = *tokens;
  return chat;
}

// The fields of an answer that repeat the request, in the form that OpenAI's clients check.
ordered_json echo_of(const Fields& f, const Asked& asked) {
  const auto given = [&](const char* key, const ordered_json& otherwise) {
    const ordered_json* value = f.find(key);
    return value ? *value : otherwise;
  };
  const engine::SamplingOptions& sampling = asked.work.request.generate.sampling;
  ordered_json tools = ordered_json::array();
  if (!asked.tools.is_null()) {
    for (const ordered_json& tool : asked.tools) {
      const ordered_json& function = tool["function"];
      tools.push_back({{"type", "function"},
                       {"name", function["name"]},
                       {"description", function.value("description", ordered_json())},
                       {"parameters", function.value("parameters", ordered_json::object())},
                       {"strict", function.value("strict", ordered_json(false))}});
    }
  }
  return {{"instructions", given("instructions", nullptr)},
          {"max_output_tokens", given("max_output_tokens", nullptr)},
          {"metadata", given("metadata", ordered_json::object())},
          {"parallel_tool_calls", given("parallel_tool_calls", true)},
          {"previous_response_id", nullptr},
          {"reasoning", given("reasoning", {{"effort", nullptr}, {"summary", nullptr}})},
          {"store", false},
          {"temperature", sampling.temperature},
          {"text", given("text", {{"format", {{"type", "text"}}}})},
          {"tool_choice", given("tool_choice", "auto")},
          {"tools", std::move(tools)},
          {"top_logprobs", given("top_logprobs", 0)},
          {"top_p", sampling.top_p},
          {"truncation", "disabled"}};
}

class ResponsesStream final : public BlockStream {
 public:
  ResponsesStream(ResponsesRequest request, engine::LanguageModel& model)
      : BlockStream(std::move(request.asked)), model_(model), echo_(std::move(request.echo)) {}

  std::string begin() override {
    const ordered_json response = response_json("in_progress", nullptr);
    std::string out = event("response.created", {{"response", response}});  // in this order: events are numbered
    out += event("response.in_progress", {{"response", response}});
    return out;
  }
  std::string finish(const std::vector<const Outcome*>& outcomes) override {
    const ordered_json response = whole(outcomes);
    return event("response." + response["status"].get<std::string>(), {{"response", response}});
  }
  std::string fail(int, const std::string&, const std::string& message) override {
    const std::string out = break_off();
    ordered_json response = response_json("failed", nullptr);
    response["error"] = {{"code", "server_error"}, {"message", message}};  // of the codes that OpenAI's clients accept
    return out + event("response.failed", {{"response", std::move(response)}});
  }
  ordered_json whole(const std::vector<const Outcome*>& outcomes) override {
    const bool cut = outcomes[0]->generated.finish == engine::Finish::length;
    return response_json(cut ? "incomplete" : "completed", outcomes[0]);
  }

 protected:
  std::string start(int64_t) override { return ""; }
  std::string open(Block block, const std::string& name) override {
    text_.clear();
    logprobs_ = ordered_json::array();
    item_ = {{"id", random_id(block == Block::reasoning ? "rs_" : block == Block::text ? "msg_" : "fc_")}};
    if (block == Block::reasoning) {
      item_.update({{"type", "reasoning"}, {"summary", ordered_json::array()}, {"content", ordered_json::array()}});
    } else if (block == Block::text) {
      item_.update({{"type", "message"}, {"role", "assistant"}, {"content", ordered_json::array()}});
    } else {
      item_.update({{"type", "function_call"}, {"call_id", random_id("call_")}, {"name", name}, {"arguments", ""}});
    }
    item_["status"] = "in_progress";
    const std::string added = event("response.output_item.added", {{"output_index", output_.size()}, {"item", item_}});
    if (block == Block::call) return added;
    return added + event("response.content_part.added", place({{"content_index", 0}, {"part", part(block, "")}}));
  }
  std::string add(Block block, const std::string& text) override {
    if (text.empty()) return "";
    text_ += text;
    const ordered_json logprobs = block == Block::text ? logprobs_of(text) : ordered_json::array();
    unplaced().clear();
    if (block == Block::call) return event("response.function_call_arguments.delta", place({{"delta", text}}));
    ordered_json data = {{"content_index", 0}, {"delta", text}};
    if (block == Block::text) data["logprobs"] = logprobs;
    for (const ordered_json& token : logprobs) logprobs_.push_back(token);
    return event(std::string(name_of(block)) + ".delta", place(data));
  }
  std::string close(Block block, bool complete) override {
    std::string out;
    if (block == Block::call) {
      out = event("response.function_call_arguments.done", place({{"name", item_["name"]}, {"arguments", text_}}));
      item_["arguments"] = text_;
    } else {
      ordered_json data = {{"content_index", 0}, {"text", text_}};
      if (block == Block::text) data["logprobs"] = logprobs_;
      out = event(std::string(name_of(block)) + ".done", place(data));
      const ordered_json whole = part(block, text_, logprobs_);
      out += event("response.content_part.done", place({{"content_index", 0}, {"part", whole}}));
      item_["content"] = ordered_json::array({whole});
    }
    item_["status"] = complete ? "completed" : "incomplete";
    out += event("response.output_item.done", {{"output_index", output_.size()}, {"item", item_}});
    output_.push_back(std::exchange(item_, {}));
    return out;
  }

 private:
  static const char* name_of(Block block) {
    return block == Block::reasoning ? "response.reasoning_text" : "response.output_text";
  }
  // Of the last tokens before the end of `text`, as many as it takes: before them may be what opened or closed
  // something else.
  ordered_json logprobs_of(const std::string& text) {
    auto& tokens = unplaced();
    std::erase_if(tokens, [&](const auto& token) { return model_.is_silent(token[0].id); });
    size_t first = tokens.size(), bytes = 0;
    while (first > 0 && bytes < text.size()) bytes += model_.tokenizer().bytes_of(tokens[--first][0].id).size();
    return engine::logprobs_json(&model_.tokenizer(), std::span(tokens).subspan(first))["content"];
  }
  static ordered_json part(Block block, const std::string& text, const ordered_json& logprobs = ordered_json::array()) {
    if (block == Block::reasoning) return {{"type", "reasoning_text"}, {"text", text}};
    return {{"type", "output_text"}, {"text", text}, {"annotations", ordered_json::array()}, {"logprobs", logprobs}};
  }
  ordered_json place(const ordered_json& data) const {
    ordered_json out = {{"item_id", item_["id"]}, {"output_index", output_.size()}};
    out.update(data);
    return out;
  }
  std::string event(const std::string& type, const ordered_json& data) {
    ordered_json out = {{"type", type}, {"sequence_number", sequence_++}};
    out.update(data);
    return named_event(out);
  }
  ordered_json response_json(const char* status, const Outcome* outcome) const {
    ordered_json out = {{"id", asked().id},       {"object", "response"}, {"created_at", asked().created},
                        {"status", status},       {"error", nullptr},     {"incomplete_details", nullptr},
                        {"model", asked().model}, {"output", output_}};
    out.update(echo_);
    if (std::string(status) == "incomplete") out["incomplete_details"] = {{"reason", "max_output_tokens"}};
    out["usage"] = nullptr;
    if (!outcome) return out;
    const int64_t prompt = std::ssize(asked().work.request.prompt), answer = std::ssize(outcome->generated.ids);
    out["usage"] = {{"input_tokens", prompt},
                    {"input_tokens_details", {{"cached_tokens", outcome->cached_tokens}, {"cache_write_tokens", 0}}},
                    {"output_tokens", answer},
                    {"output_tokens_details", {{"reasoning_tokens", outcome->reasoning_tokens}}},
                    {"total_tokens", prompt + answer}};
    return out;
  }

  engine::LanguageModel& model_;
  ordered_json echo_, output_ = ordered_json::array(), item_, logprobs_ = ordered_json::array();
  std::string text_;  // of the item
  int64_t sequence_ = 0;
};

}  // namespace

ResponsesRequest read_responses(const std::string& body, engine::LanguageModel& model, const Defaults& defaults) {
  const ordered_json json = parse_body(body);
  const Fields f(json);
  for (const char* key : {"previous_response_id", "conversation", "prompt"}) {
    if (f.find(key))
      refuse(fmt::format("'{}' needs what is not kept here: send the whole conversation as 'input'", key), key,
             "unsupported_parameter");
  }
  f.only("background", false);
  const ordered_json chat = chat_of_responses(json, f);
  ResponsesRequest out{
      .asked = said_of("response_format", "text.format", [&] { return read_chat_json(chat, model, defaults); })};
  out.asked.id = random_id("resp_");
  out.echo = echo_of(f, out.asked);
  return out;
}

std::unique_ptr<BlockStream> responses_stream(ResponsesRequest request, engine::LanguageModel& model) {
  return std::make_unique<ResponsesStream>(std::move(request), model);
}

}  // namespace braid::serve
