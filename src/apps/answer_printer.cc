#include "apps/answer_printer.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "report/progress.h"
#include "report/units.h"

namespace braid::apps {

namespace {

// The text between the tags on one line.
std::string call_line(const std::string& text) {
  std::string line = "tool call:";
  for (size_t begin = 0; (begin = text.find_first_not_of(" \t\r\n", begin)) != text.npos;) {
    const size_t end = std::min(text.find_first_of(" \t\r\n", begin), text.size());
    line += " " + text.substr(begin, end - begin);
    begin = end;
  }
  return line;
}

}  // namespace

AnswerPrinter::AnswerPrinter(bool raw) : raw_(raw), tags_(!report::colourful(stderr)) {
  dim_ = tags_ ? "" : "\x1b[2m";
  plain_ = tags_ ? "" : "\x1b[0m";
}

AnswerPrinter::~AnswerPrinter() {
  if (thinking_) std::fputs(plain_, stderr);  // an error cut the thinking
}

void AnswerPrinter::put(const std::string& piece, std::FILE* stream) {
  std::fputs(piece.c_str(), stream);
  std::fflush(stream);
  last_ = piece.back();
}

void AnswerPrinter::print(const engine::ReasoningSplitter::Parts& parts) {
  if (!parts.reasoning.empty()) {
    if (!thinking_) std::fputs(tags_ ? "<think>\n" : dim_, stderr);
    thinking_ = true;
    put(parts.reasoning, stderr);
  }
  if (parts.content.empty()) return;
  end_thinking();
  raw_ ? put(parts.content, stdout) : put_answer(parts.content);
}

void AnswerPrinter::put_answer(const std::string& piece) {
  constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>";
  held_ += piece;
  while (!held_.empty()) {
    const std::string_view tag = in_call_ ? kClose : kOpen;
    const size_t at = held_.find(tag);
    const size_t n = at != held_.npos ? at : in_call_ ? 0 : held_.size() - engine::partial_tag(held_, tag);
    if (n > 0) put(in_call_ ? call_line(held_.substr(0, n)) : held_.substr(0, n), stdout);
    held_.erase(0, at == held_.npos ? n : n + tag.size());
    if (at == held_.npos) return;
    if (last_ != '\n') put("\n", stdout);
    in_call_ = !in_call_;
  }
}

void AnswerPrinter::end_thinking() {
  if (!thinking_) return;
  thinking_ = false;
  std::fputs(last_ == '\n' ? "" : "\n", stderr);
  std::fputs(tags_ ? "</think>\n" : plain_, stderr);
  last_ = '\n';
}

void AnswerPrinter::end() {
  end_thinking();
  if (!held_.empty()) put(in_call_ ? call_line(held_) : held_, stdout);  // cut short
  held_.clear();
  in_call_ = false;
  if (last_ != '\n') put("\n", stdout);
}

void AnswerPrinter::note(const std::string& line) const {
  std::fputs(fmt::format("{}{}{}\n", dim_, line, plain_).c_str(), stderr);
}

void AnswerPrinter::speed(const engine::Timings& t, int64_t cached_tokens) const {
  const auto rate = [](int64_t n, double seconds) { return report::rate(static_cast<double>(n), seconds, "tokens"); };
  // The first token comes with the prompt.
  const std::string pace = t.generated_tokens > 1 ? ", " + rate(t.generated_tokens - 1, t.generate_seconds) : "";
  note(fmt::format("{}{}, prompt {}{}, {}", report::counted(t.generated_tokens, "token"), pace,
                   report::counted(t.prompt_tokens, "token"),
                   cached_tokens > 0 ? fmt::format(" ({} more cached)", cached_tokens) : "",
                   rate(t.prompt_tokens, t.prompt_seconds)));
}

// As llama-server counts: predicted_n has the first token, predicted_ms begins after it.
nlohmann::ordered_json timings_json(const engine::Timings& t) {
  const auto rate = [](int64_t n, double s) { return s > 0 ? static_cast<double>(n) / s : 0.0; };
  return {{"prompt_n", t.prompt_tokens},
          {"prompt_ms", 1e3 * t.prompt_seconds},
          {"prompt_per_second", rate(t.prompt_tokens, t.prompt_seconds)},
          {"predicted_n", t.generated_tokens},
          {"predicted_ms", 1e3 * t.generate_seconds},
          {"predicted_per_second", rate(t.generated_tokens, t.generate_seconds)},
          {"draft_n", t.drafted_tokens},
          {"draft_n_accepted", t.accepted_tokens}};
}

}  // namespace braid::apps
