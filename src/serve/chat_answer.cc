#include "serve/chat_answer.h"

#include <fmt/format.h>

#include <utility>

#include "engine/logprobs.h"
#include "text/tool_calls.h"

namespace braid::serve {
namespace {

using nlohmann::ordered_json;

ordered_json calls_json(const std::vector<text::ToolCall>& calls, bool indexed) {
  ordered_json out = ordered_json::array();
  for (size_t i = 0; i < calls.size(); ++i) {
    ordered_json call = ordered_json::object();
    if (indexed) call["index"] = i;
    call["id"] = random_id("call_");
    call["type"] = "function";
    call["function"] = {{"name", calls[i].name}, {"arguments", calls[i].arguments.dump()}};
    out.push_back(std::move(call));
  }
  return out;
}

ordered_json choice_json(const Asked& asked, size_t i, const Said& said, const Outcome& outcome,
                         engine::LanguageModel& model) {
  text::ParsedAnswer parsed =
      asked.tools.is_null() ? text::ParsedAnswer{said.content, {}} : text::parse_tool_calls(said.content, asked.tools);
  ordered_json message = {{"role", "assistant"}, {"content", parsed.content}};
  if (!said.reasoning.empty()) message[asked.reasoning_field] = said.reasoning;
  if (!parsed.calls.empty()) {
    if (parsed.content.empty()) message["content"] = nullptr;
    message["tool_calls"] = calls_json(parsed.calls, false);
  }
  ordered_json choice = {{"index", i},
                         {"message", std::move(message)},
                         {"logprobs", nullptr},
                         {"finish_reason", finish_of(outcome, !parsed.calls.empty())}};
  if (asked.logprobs) choice["logprobs"] = engine::logprobs_json(&model.tokenizer(), outcome.generated.logprobs);
  return choice;
}

class ChatStream final : public AnswerStream {
 public:
  ChatStream(Asked asked, engine::LanguageModel& model)
      : asked_(std::move(asked)), model_(model), held_(static_cast<size_t>(asked_.n)), logprobs_(held_.size()) {}

  std::string begin() override {
    std::string out;
    for (size_t i = 0; i < held_.size(); ++i) out += event(i, {{"role", "assistant"}, {"content", ""}}, nullptr);
    return out;
  }
  std::string news(size_t i, const Reply::News& news) override {
    logprobs_[i].insert(logprobs_[i].end(), news.logprobs.begin(), news.logprobs.end());
    std::string out;
    if (!news.text.reasoning.empty()) out += event(i, {{asked_.reasoning_field, news.text.reasoning}}, nullptr);
    held_[i] += news.text.content;
    const size_t length = asked_.tools.is_null() ? held_[i].size() : text::length_before_calls(held_[i]);
    if (length > 0) out += event(i, {{"content", held_[i].substr(0, length)}}, nullptr);
    held_[i].erase(0, length);
    return out;
  }
  std::string end(size_t i, const Outcome& outcome) override {
    const text::ParsedAnswer parsed =
        asked_.tools.is_null() ? text::ParsedAnswer{} : text::parse_tool_calls(held_[i], asked_.tools);
    std::string out;
    if (!parsed.content.empty()) out += event(i, {{"content", parsed.content}}, nullptr);
    if (!parsed.calls.empty()) out += event(i, {{"tool_calls", calls_json(parsed.calls, true)}}, nullptr);
    return out + event(i, ordered_json::object(), finish_of(outcome, !parsed.calls.empty()));
  }
  std::string finish(const std::vector<const Outcome*>& outcomes) override {
    std::string out;
    if (asked_.usage) {
      ordered_json last = envelope(asked_, "chat.completion.chunk");
      last["choices"] = ordered_json::array();
      last["usage"] = usage_of({asked_}, outcomes);
      out = sse(last);
    }
    return out + "data: [DONE]\n\n";
  }
  std::string fail(int status, const std::string& type, const std::string& message) override {
    return sse(error_json(status, type, message)) + "data: [DONE]\n\n";
  }

 private:
  std::string event(size_t i, const ordered_json& delta, const char* finish) {
    ordered_json out = envelope(asked_, "chat.completion.chunk");
    ordered_json choice = {{"index", i}, {"delta", delta}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
    if (!logprobs_[i].empty())
      choice["logprobs"] = engine::logprobs_json(&model_.tokenizer(), std::exchange(logprobs_[i], {}));
    if (finish) choice["finish_reason"] = finish;
    out["choices"] = ordered_json::array({std::move(choice)});
    if (asked_.usage) out["usage"] = nullptr;
    return sse(out);
  }

  Asked asked_;
  engine::LanguageModel& model_;
  std::vector<std::string> held_;  // of the content
  std::vector<std::vector<std::vector<engine::TokenLogprob>>> logprobs_;
};

}  // namespace

ordered_json chat_json(const Asked& asked, const std::vector<Said>& said, const std::vector<const Outcome*>& outcomes,
                       engine::LanguageModel& model) {
  ordered_json out = envelope(asked, "chat.completion");
  out["choices"] = ordered_json::array();
  for (size_t i = 0; i < said.size(); ++i)
    out["choices"].push_back(choice_json(asked, i, said[i], *outcomes[i], model));
  out["usage"] = usage_of({asked}, outcomes);
  return out;
}

std::unique_ptr<AnswerStream> chat_stream(Asked asked, engine::LanguageModel& model) {
  return std::make_unique<ChatStream>(std::move(asked), model);
}

}  // namespace braid::serve
