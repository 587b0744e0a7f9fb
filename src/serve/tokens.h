// Text to token ids and back, for clients: {"content" or "prompt", "add_special"} to {"tokens", "count"}, and
// {"tokens"} to {"content", "prompt"}. The forms of llama-server and vLLM.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/language_model.h"

namespace braid::serve {

// ApiError for a body that is not such a request.
nlohmann::ordered_json tokens_json(const std::string& body, engine::LanguageModel& model);
nlohmann::ordered_json text_json(const std::string& body, engine::LanguageModel& model);

}  // namespace braid::serve
