#include "apps/answer_printer.h"

#include <fmt/format.h>

#include "report/progress.h"

namespace braid::apps {

AnswerPrinter::AnswerPrinter() : tags_(!report::colourful(stderr)) {
  dim_ = tags_ ? "" : "\x1b[2m";
  plain_ = tags_ ? "" : "\x1b[0m";
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
  put(parts.content, stdout);
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
  if (last_ != '\n') put("\n", stdout);
}

void AnswerPrinter::note(const std::string& line) const {
  std::fputs(fmt::format("{}{}{}\n", dim_, line, plain_).c_str(), stderr);
}

}  // namespace braid::apps
