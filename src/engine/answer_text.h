// The text of an answer from its tokens: what a user sees, and the thinking apart.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "text/tokenizer.h"

namespace braid::engine {

// End tokens and other special ones are silent, except for the tags that people and parsers read.
bool is_silent(const text::Tokenizer& tokenizer, int32_t id);

struct AnswerText {
  std::string reasoning, content;  // without white space around them
};
// `thinking`: the prompt ended inside <think>.
AnswerText answer_text(const text::Tokenizer& tokenizer, bool thinking, std::span<const int32_t> ids);

}  // namespace braid::engine
