#include "engine/conversation.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "sys/error.h"

namespace braid::engine {

nlohmann::ordered_json Answer::message() const {
  nlohmann::ordered_json m = {{"role", "assistant"}, {"content", content}};
  if (!reasoning.empty()) m["reasoning_content"] = reasoning;
  return m;
}

int64_t Conversation::prompt_tokens(const nlohmann::ordered_json& messages, std::optional<bool> think) {
  return std::ssize(model_.tokenizer().encode(model_.render(messages, {.think = think}), false));
}

std::vector<int32_t> Conversation::encode(const std::string& prompt, text::Tokenizer::Memo& memo) {
  std::vector<int32_t> ids = model_.tokenizer().encode(prompt, false, memo);
  const int64_t context = model_.runner().options().context;
  if (ids.empty())
    fail("chat", {.what = "the chat template does not render this conversation",
                  .hint = "braid template, to see what it renders"});
  if (static_cast<int64_t>(ids.size()) >= context) {
    fail("context", {.what = "the conversation is too long",
                     .got = fmt::format("{} tokens", ids.size()),
                     .expected = fmt::format("fewer than {}", context),
                     .hint = model_.runner().context_may_grow() ? "/reset, --context-shift, or a larger -c"
                                                                : "/reset, or --context-shift"});
  }
  return ids;
}

std::vector<int64_t> marks_of(LanguageModel& model, const nlohmann::ordered_json& messages, RenderOptions options,
                              const std::vector<int32_t>& prompt, text::Tokenizer::Memo& memo) {
  options.answer_next = false;
  std::vector<int64_t> marks;
  const auto mark = [&](const nlohmann::ordered_json& part) {
    try {
      const std::vector<int32_t> ids = model.tokenizer().encode(model.render(part, options), false, memo);
      const auto end = std::mismatch(ids.begin(), ids.end(), prompt.begin(), prompt.end()).first - ids.begin();
      if (end > 0 && end < std::ssize(prompt) && (marks.empty() || end > marks.back())) marks.push_back(end);
    } catch (const Error&) {  // the template takes no such conversation
    }
  };
  if (messages.size() > 1 && messages[0].value("role", "") == "system")
    mark(nlohmann::ordered_json::array({messages[0]}));
  mark(messages);
  return marks;
}

Answer Conversation::answer(const nlohmann::ordered_json& messages, const AnswerOptions& options,
                            const AnswerListener& listener) {
  const RenderOptions rendering{.think = options.think};
  const std::string prompt = model_.render(messages, rendering);
  Answer answer;
  text::Tokenizer::Memo memo;
  answer.prompt_ids = encode(prompt, memo);
  const bool thinking = ends_in_think(prompt);
  const std::vector<int32_t>& ids = answer.prompt_ids;
  rewritten_ = rewritten_ || std::mismatch(read_.begin(), read_.end(), ids.begin(), ids.end()).first != read_.end();

  Request request{.prompt = ids, .generate = options.generate};
  // A mark costs a piece of its own, and only what is rewritten is read again from there.
  if (scheduler_.cache() && (thinking || rewritten_)) request.marks = marks_of(model_, messages, rendering, ids, memo);
  request.generate.thinking = model_.thinking_after(prompt, options.think);
  request.generate.position = position_ = std::max(position_, std::ssize(ids));
  bool wanted = true;
  int64_t read = 0;
  request.wanted = [&] { return wanted; };
  const auto on_prompt = [&] {
    if (const int64_t total = std::ssize(ids) - answer.cached_tokens; read < total)
      wanted = listener.on_prompt(read, total);
  };
  request.on_start = [&](int64_t cached) {
    answer.cached_tokens = cached;
    on_prompt();
  };
  request.on_read = [&](int64_t tokens) {
    read = tokens - answer.cached_tokens;
    on_prompt();
  };
  text::StreamDecoder decoder(model_.tokenizer(), false);
  ReasoningSplitter splitter(thinking, ends_in_closed_think(prompt));
  const auto tell = [&](const ReasoningSplitter::Parts& parts) {
    answer.reasoning += parts.reasoning;
    answer.content += parts.content;
    return listener.on_text(parts);
  };
  request.on_token = [&](int32_t id) {
    return tell(model_.is_silent(id) ? ReasoningSplitter::Parts{} : splitter.push(decoder.push(id)));
  };
  answer.generated = generate(scheduler_, std::move(request));
  const std::vector<int32_t>& said = answer.generated.ids;
  read_.assign(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(answer.cached_tokens + read));
  if (said.empty()) return answer;
  tell(splitter.push(decoder.finish()));
  tell(splitter.finish());
  position_ += std::ssize(said);
  read_.insert(read_.end(), said.begin(), said.end() - 1);  // the last one was only sampled
  return answer;
}

}  // namespace braid::engine
