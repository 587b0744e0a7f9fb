// Conversations that a chat template refuses, in a form that it takes. Clients send what their own models take:
// instructions anywhere, several calls in a turn, tools without a description, call ids of any length, one user turn
// after another. Templates refuse some of it, each something else, or leave it out. A change is made only where it
// makes a difference to that, so that the prompts of a conversation keep their beginning from turn to turn.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "engine/language_model.h"

namespace braid::serve {

// The prompt. `messages` (as chat_messages makes them) and `tools` (null: none) become what was rendered; options.tools
// is not read. The template's first error where no change helps.
std::string render_in_form(engine::LanguageModel& model, nlohmann::ordered_json& messages,
                           nlohmann::ordered_json& tools, const engine::RenderOptions& options);

}  // namespace braid::serve
