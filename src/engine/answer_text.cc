#include "engine/answer_text.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "engine/reasoning.h"
#include "text/trimmed.h"

namespace braid::engine {
namespace {

constexpr std::array<std::string_view, 7> kSpokenTags = {"<think>",    "</think>",    "<tool_call>",   "</tool_call>",
                                                         "<TOOLCALL>", "</TOOLCALL>", "<|python_tag|>"};

}  // namespace

bool is_silent(const text::Tokenizer& tokenizer, int32_t id) {
  if (!tokenizer.is_special(id)) return false;
  const auto token = tokenizer.id_to_token(id);
  return !token || std::find(kSpokenTags.begin(), kSpokenTags.end(), *token) == kSpokenTags.end();
}

AnswerText answer_text(const text::Tokenizer& tokenizer, bool thinking, std::span<const int32_t> ids) {
  text::StreamDecoder decoder(tokenizer, false);
  std::string visible;
  for (const int32_t id : ids) {
    if (!is_silent(tokenizer, id)) visible += decoder.push(id);
  }
  visible += decoder.finish();
  ReasoningSplitter splitter(thinking);
  AnswerText out;
  for (const auto& part : {splitter.push(visible), splitter.finish()}) {
    out.reasoning += part.reasoning;
    out.content += part.content;
  }
  out.reasoning = text::trimmed(out.reasoning);
  out.content = text::trimmed(out.content);
  return out;
}

}  // namespace braid::engine
