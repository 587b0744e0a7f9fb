// Text to token ids and back, for clients: {"content" or "prompt", "add_special"}, or the {"messages"} of a chat, to
// {"tokens", "count"}, and {"tokens"} to {"content", "prompt"}. The forms of llama-server ("content", without special
// tokens unless "add_special" is true) and of vLLM (with them, unless "add_special_tokens" is false).
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/language_model.h"
#include "serve/asked.h"

namespace braid::serve {

// ApiError for a body that is not such a request.
nlohmann::ordered_json tokens_json(const std::string& body, engine::LanguageModel& model, const Defaults& defaults);
nlohmann::ordered_json text_json(const std::string& body, engine::LanguageModel& model);

}  // namespace braid::serve
