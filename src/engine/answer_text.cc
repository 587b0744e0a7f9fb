#include "engine/answer_text.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "engine/reasoning.h"

namespace braid::engine {
namespace {

constexpr std::array<std::string_view, 6> kSpokenTags = {"<think>",      "</think>",   "<tool_call>",
                                                         "</tool_call>", "<TOOLCALL>", "</TOOLCALL>"};

std::string without_margins(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first == text.npos ? "" : text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

}  // namespace

bool is_silent(const text::Tokenizer& tokenizer, int32_t id) {
  if (!tokenizer.is_special(id)) return false;
  const auto token = tokenizer.id_to_token(id);
  return !token || std::find(kSpokenTags.begin(), kSpokenTags.end(), *token) == kSpokenTags.end();
}

AnswerText answer_text(const text::Tokenizer& tokenizer, bool thinking, std::span<const int32_t> ids) {
  text::StreamDecoder decoder(tokenizer, false);
  std::string text;
  for (const int32_t id : ids) {
    if (!is_silent(tokenizer, id)) text += decoder.push(id);
  }
  text += decoder.finish();
  ReasoningSplitter splitter(thinking);
  AnswerText out;
  for (const auto& part : {splitter.push(text), splitter.finish()}) {
    out.reasoning += part.reasoning;
    out.content += part.content;
  }
  out.reasoning = without_margins(out.reasoning);
  out.content = without_margins(out.content);
  return out;
}

}  // namespace braid::engine
