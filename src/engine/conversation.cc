#include "engine/conversation.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "sys/error.h"

namespace braid::engine {

nlohmann::ordered_json Answer::message() const {
  nlohmann::ordered_json m = {{"role", "assistant"}, {"content", content}};
  if (!reasoning.empty()) m["reasoning_content"] = reasoning;
  return m;
}

std::vector<int32_t> Conversation::encode(const std::string& prompt) {
  std::vector<int32_t> ids = model_.tokenizer().encode(prompt, false);
  const int64_t context = model_.runner().options().context;
  if (ids.empty()) fail("chat", {.what = "the chat template does not render this conversation"});
  if (static_cast<int64_t>(ids.size()) >= context) {
    fail("context",
         {.what = "the conversation is too long",
          .got = fmt::format("{} tokens", ids.size()),
          .expected = fmt::format("fewer than {}", context),
          .hint = model_.runner().context_may_grow() ? "a new conversation, or a larger -c" : "a new conversation"});
  }
  return ids;
}

// The state stays when `prompt` goes on where it ends; one token at least must be left to read, for its logits.
void Conversation::keep_common(const std::vector<int32_t>& prompt) {
  const bool whole = model_.runner().length(sequence_) == static_cast<int64_t>(read_.size());  // not after an exception
  if (whole && read_.size() < prompt.size() && std::equal(read_.begin(), read_.end(), prompt.begin())) return;
  model_.runner().reset(sequence_);
  read_.clear();
}

// In the pieces that Runner::prefill would cut, so that a long prompt can be stopped. False: it was.
bool Conversation::read_all_but_last_piece(std::span<const int32_t>& fresh, Timings& timings,
                                           const AnswerListener& listener) {
  Runner& runner = model_.runner();
  const auto total = static_cast<int64_t>(fresh.size()), chunk = runner.options().chunk;
  const auto start = std::chrono::steady_clock::now();
  bool wanted = listener.on_prompt(0, total);
  while (wanted && static_cast<int64_t>(fresh.size()) > chunk) {
    const auto piece = fresh.first(static_cast<size_t>(chunk));
    runner.prefill(sequence_, piece, [](const Tensor&) {});
    read_.insert(read_.end(), piece.begin(), piece.end());
    fresh = fresh.subspan(piece.size());
    wanted = listener.on_prompt(total - static_cast<int64_t>(fresh.size()), total);
  }
  timings.prompt_tokens = total - static_cast<int64_t>(fresh.size());
  timings.prompt_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return wanted;
}

Answer Conversation::answer(const nlohmann::ordered_json& messages, const AnswerOptions& options,
                            const AnswerListener& listener) {
  const std::string prompt = model_.render(messages, options.think);
  Answer answer;
  answer.prompt_ids = encode(prompt);
  keep_common(answer.prompt_ids);
  answer.kept = static_cast<int64_t>(read_.size());

  std::span<const int32_t> fresh = std::span(answer.prompt_ids).subspan(read_.size());
  Timings before;
  if (!read_all_but_last_piece(fresh, before, listener)) {
    answer.generated.finish = Finish::cancelled;
    answer.generated.timings = before;
    return answer;
  }
  text::StreamDecoder decoder(model_.tokenizer(), false);
  ReasoningSplitter splitter(ends_in_think(prompt));
  const auto tell = [&](const ReasoningSplitter::Parts& parts) {
    answer.reasoning += parts.reasoning;
    answer.content += parts.content;
    return listener.on_text(parts);
  };
  GenerateOptions from_here = options.generate;
  from_here.position = position_ = std::max(position_, std::ssize(answer.prompt_ids));
  answer.generated = generate(
      model_.runner(), sequence_, read_, fresh, from_here,
      [&](int32_t id) {
        return tell(model_.is_silent(id) ? ReasoningSplitter::Parts{} : splitter.push(decoder.push(id)));
      },
      [](const Tensor&) {});
  tell(splitter.push(decoder.finish()));
  tell(splitter.finish());
  answer.generated.timings.prompt_tokens += before.prompt_tokens;
  answer.generated.timings.prompt_seconds += before.prompt_seconds;

  // The last token was drawn but not read.
  const std::vector<int32_t>& ids = answer.generated.ids;
  position_ += std::ssize(ids);
  read_.insert(read_.end(), fresh.begin(), fresh.end());
  read_.insert(read_.end(), ids.begin(), ids.end());
  read_.resize(static_cast<size_t>(model_.runner().length(sequence_)));
  return answer;
}

}  // namespace braid::engine
