// Conversations rendered by a chat template into examples, with a mask over what the assistant says. The mask is found
// by rendering, not by searching for markers: a turn's prompt is the conversation before it with the generation prompt,
// and its answer is what the template adds to that, including the token that ends the turn. If the template drops the
// thinking of earlier turns, a conversation gives several examples, so that every turn is trained in its original
// context.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "data/thoughts.h"
#include "text/template.h"
#include "text/tokenizer.h"

namespace braid::data {

struct Example {
  std::vector<int32_t> ids;
  std::vector<uint8_t> trained;  // [ids]
};

// `line` is an object with `messages`; its other members (tools, enable_thinking, ...) and those of
// `chat_template_kwargs` are variables of the template. Error when there is no answer to learn, or the template
// refuses, or has no switch to turn thinking off where thoughts are stripped.
std::vector<Example> examples_of(const nlohmann::ordered_json& line, const text::ChatTemplate& chat,
                                 const text::Tokenizer& tokenizer, const std::string& where,
                                 Thoughts thoughts = Thoughts::whole, uint64_t hash = 0);

// The text that asks for the next answer of a conversation, at the date that examples have. `variables`: messages, and
// whatever else the template reads.
std::string prompt_text(nlohmann::ordered_json variables, const text::ChatTemplate& chat, const std::string& where);

// The whole conversation, whose last turn is the assistant's and alone is trained.
Example last_answer_of(const nlohmann::ordered_json& line, const text::ChatTemplate& chat,
                       const text::Tokenizer& tokenizer, const std::string& where);

}  // namespace braid::data
