#include "serve/chat_answer.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "engine/logprobs.h"
#include "text/tool_calls.h"

namespace braid::serve {
namespace {

using nlohmann::ordered_json;

ordered_json calls_json(const std::vector<text::ToolCall>& calls) {
  ordered_json out = ordered_json::array();
  for (const text::ToolCall& call : calls)
    out.push_back({{"id", random_id("call_")},
                   {"type", "function"},
                   {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  return out;
}

ordered_json choice_json(const Asked& asked, size_t i, const Said& said, const Outcome& outcome,
                         engine::LanguageModel& model) {
  const text::ParsedAnswer parsed = parsed_answer(asked, said, outcome);
  ordered_json message = {{"role", "assistant"}, {"content", parsed.content + standing_in(asked, said)}};
  if (!said.reasoning.empty()) message[asked.reasoning_field] = said.reasoning;
  if (!parsed.calls.empty()) {
    if (parsed.content.empty()) message["content"] = nullptr;
    message["tool_calls"] = calls_json(parsed.calls);
  }
  ordered_json choice = {{"index", i},
                         {"message", std::move(message)},
                         {"logprobs", nullptr},
                         {"finish_reason", finish_of(outcome, !parsed.calls.empty() && parsed.calls.back().complete)}};
  if (asked.logprobs) choice["logprobs"] = engine::logprobs_json(&model.tokenizer(), outcome.generated.logprobs);
  return choice;
}

class ChatStream final : public AnswerStream {
 public:
  ChatStream(Asked asked, engine::LanguageModel& model)
      : asked_(std::move(asked)),
        model_(model),
        choices_(static_cast<size_t>(asked_.n), Choice{text::ToolCallStream(asked_.tools, asked_.bare_calls)}) {}

  std::string begin() override {
    std::string out;
    for (size_t i = 0; i < choices_.size(); ++i) out += event(i, {{"role", "assistant"}, {"content", ""}}, nullptr);
    return out;
  }
  std::string news(size_t i, const Reply::News& news) override {
    if (asked_.nonempty) {
      choices_[i].said.reasoning += news.text.reasoning;
      choices_[i].said.content += news.text.content;
    }
    auto& logprobs = choices_[i].logprobs;
    for (const Reply::Token& token : news.tokens_scored) {
      if (!token.logprobs.empty()) logprobs.push_back(token.logprobs);
    }
    std::string out = news.read < 0 ? "" : progress(news);
    if (!news.text.reasoning.empty()) out += event(i, {{asked_.reasoning_field, news.text.reasoning}}, nullptr);
    if (!asked_.tools.is_null()) return out + events(i, choices_[i].calls.push(news.text.content));
    return news.text.content.empty() ? out : out + event(i, {{"content", news.text.content}}, nullptr);
  }
  std::string end(size_t i, const Outcome& outcome) override {
    std::string rest = events(i, choices_[i].calls.finish(is_cut(outcome)));
    const std::string content = standing_in(asked_, choices_[i].said);
    if (!content.empty()) rest += event(i, {{"content", content}}, nullptr);
    return rest + event(i, ordered_json::object(), finish_of(outcome, choices_[i].called));
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
  std::string fail(int, const std::string& type, const std::string& message) override {
    return sse(error_json(type, message)) + "data: [DONE]\n\n";
  }

 private:
  std::string events(size_t i, const std::vector<text::AnswerPiece>& pieces) {
    using Kind = text::AnswerPiece::Kind;
    std::string out;
    for (const text::AnswerPiece& piece : pieces) {
      if (piece.kind == Kind::content) out += event(i, {{"content", piece.text}}, nullptr);
      if (piece.kind == Kind::end) choices_[i].called = piece.complete;
      if (piece.kind != Kind::call && piece.kind != Kind::arguments) continue;
      ordered_json call = {{"index", choices_[i].begun += piece.kind == Kind::call}};
      if (piece.kind == Kind::call) {
        choices_[i].called = false;
        call["id"] = random_id("call_");
        call["type"] = "function";
        call["function"] = {{"name", piece.text}, {"arguments", ""}};
      } else {
        call["function"] = {{"arguments", piece.text}};
      }
      out += event(i, {{"tool_calls", ordered_json::array({std::move(call)})}}, nullptr);
    }
    return out;
  }
  // In the form of llama-server: a chunk that adds nothing. What was cached counts as processed.
  std::string progress(const Reply::News& news) {
    ordered_json out = chunk(0, ordered_json::object(), nullptr);
    const auto time = std::chrono::steady_clock::now() - began_;
    out["prompt_progress"] = {{"total", asked_.work.request.prompt.size()},
                              {"cache", news.cached_tokens},
                              {"processed", news.read},
                              {"time_ms", std::chrono::duration_cast<std::chrono::milliseconds>(time).count()}};
    return sse(out);
  }
  std::string event(size_t i, const ordered_json& delta, const char* finish) { return sse(chunk(i, delta, finish)); }
  ordered_json chunk(size_t i, const ordered_json& delta, const char* finish) {
    ordered_json out = envelope(asked_, "chat.completion.chunk");
    ordered_json choice = {{"index", i}, {"delta", delta}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
    if (!choices_[i].logprobs.empty())
      choice["logprobs"] = engine::logprobs_json(&model_.tokenizer(), std::exchange(choices_[i].logprobs, {}));
    if (finish) choice["finish_reason"] = finish;
    out["choices"] = ordered_json::array({std::move(choice)});
    if (asked_.usage) out["usage"] = nullptr;
    return out;
  }

  Asked asked_;
  engine::LanguageModel& model_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  struct Choice {
    text::ToolCallStream calls;
    int64_t begun = -1;   // the index of the last call
    bool called = false;  // it is complete
    Said said{};          // kept for an answer that must not be empty
    std::vector<std::vector<engine::TokenLogprob>> logprobs{};
  };
  std::vector<Choice> choices_;
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
