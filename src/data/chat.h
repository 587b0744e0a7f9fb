// Conversations as examples of a chat template, with marks on what the assistant says. What is trained is found by
// rendering, not by looking for words: the turn's prompt is the conversation before it with the generation prompt, and
// the answer is what the template adds to that, up to and with the token that ends the turn. Templates that drop the
// thinking of earlier turns make several examples of one conversation, so that every turn is trained in the text that
// it was said in.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "text/template.h"
#include "text/tokenizer.h"

namespace braid::data {

struct Example {
  std::vector<int32_t> ids;
  std::vector<uint8_t> trained;  // [ids]
};

// `line` is an object with `messages`; its other members (tools, enable_thinking, ...) and those of
// `chat_template_kwargs` are variables of the template. Error when there is no answer to learn, or the template
// refuses.
std::vector<Example> examples_of(const nlohmann::ordered_json& line, const text::ChatTemplate& chat,
                                 const text::Tokenizer& tokenizer, const std::string& where);

}  // namespace braid::data
