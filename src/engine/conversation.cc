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

int64_t Conversation::prompt_tokens(const nlohmann::ordered_json& messages, std::optional<bool> think) {
  return std::ssize(model_.tokenizer().encode(model_.render(messages, {.think = think}), false));
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

// Continues after what the sequence has read, or after its mark, if `prompt` does; else from the beginning. One token
// at least must be left to read, for its logits.
void Conversation::keep_common(const std::vector<int32_t>& prompt) {
  Runner& runner = model_.runner();
  const auto continues = [&] {
    return read_.size() < prompt.size() && std::equal(read_.begin(), read_.end(), prompt.begin());
  };
  const bool whole = runner.length(sequence_) == std::ssize(read_);  // not after an exception
  if (whole && continues()) return;
  rewritten_ = rewritten_ || !read_.empty();
  const int64_t marked = whole ? runner.rewind(sequence_) : -1;
  read_.resize(static_cast<size_t>(std::max<int64_t>(marked, 0)));
  if (marked > 0 && continues()) return;
  runner.reset(sequence_);
  read_.clear();
}

// How many tokens of the prompt to read before the state is marked: those before the answer's own prompt, which the
// next turn may render differently.
int64_t Conversation::mark_position(const nlohmann::ordered_json& messages, const RenderOptions& options,
                                    const std::vector<int32_t>& prompt) {
  RenderOptions alone = options;
  alone.answer_next = false;
  const std::vector<int32_t> ids = model_.tokenizer().encode(model_.render(messages, alone), false);
  const auto end = std::mismatch(ids.begin(), ids.end(), prompt.begin(), prompt.end()).first;
  return std::min<int64_t>(end - ids.begin(), std::ssize(prompt) - 1);
}

// In pieces of at most the runner's chunk, so that a long prompt can be stopped, with a mark after `mark` tokens of the
// prompt (-1: none). False: it was stopped.
bool Conversation::read_all_but_last_piece(std::span<const int32_t>& fresh, int64_t mark, Timings& timings,
                                           const AnswerListener& listener) {
  Runner& runner = model_.runner();
  const auto total = static_cast<int64_t>(fresh.size()), chunk = runner.options().chunk;
  const auto start = std::chrono::steady_clock::now();
  bool wanted = listener.on_prompt(0, total);
  while (wanted) {
    const int64_t before_mark = mark - std::ssize(read_);
    if (before_mark == 0) runner.mark(sequence_);
    if (before_mark <= 0 && std::ssize(fresh) <= chunk) break;
    const auto piece = fresh.first(static_cast<size_t>(before_mark > 0 ? std::min(before_mark, chunk) : chunk));
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
  const RenderOptions rendering{.think = options.think};
  const std::string prompt = model_.render(messages, rendering);
  Answer answer;
  answer.prompt_ids = encode(prompt);
  const bool thinking = ends_in_think(prompt);
  const bool may_rewrite = (thinking || rewritten_) && model_.runner().options().spare_slots > 0;
  const int64_t mark = may_rewrite ? mark_position(messages, rendering, answer.prompt_ids) : -1;
  keep_common(answer.prompt_ids);
  answer.cached_tokens = std::ssize(read_);

  std::span<const int32_t> fresh = std::span(answer.prompt_ids).subspan(read_.size());
  Timings before;
  if (!read_all_but_last_piece(fresh, mark, before, listener)) {
    answer.generated.finish = Finish::cancelled;
    answer.generated.timings = before;
    return answer;
  }
  text::StreamDecoder decoder(model_.tokenizer(), false);
  ReasoningSplitter splitter(thinking);
  const auto tell = [&](const ReasoningSplitter::Parts& parts) {
    answer.reasoning += parts.reasoning;
    answer.content += parts.content;
    return listener.on_text(parts);
  };
  GenerateOptions from_here = options.generate;
  if (!thinking) from_here.budget = {};
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

  // The last token was sampled but not read.
  const std::vector<int32_t>& ids = answer.generated.ids;
  position_ += std::ssize(ids);
  read_.insert(read_.end(), fresh.begin(), fresh.end());
  read_.insert(read_.end(), ids.begin(), ids.end());
  read_.resize(static_cast<size_t>(model_.runner().length(sequence_)));
  return answer;
}

}  // namespace braid::engine
