// The requests of OpenAI's chat completions: from JSON to work for the worker.
// https://platform.openai.com/docs/api-reference/chat
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "serve/asked.h"

namespace braid::serve {

// ApiError for a body that is not such a request, asks for what is not there, or leaves no room for an answer.
Asked read_chat(const std::string& body, engine::LanguageModel& model, const Defaults& defaults);
// The same of a body that another surface has translated. `limited`: refuse what leaves no room for an answer.
Asked read_chat_json(const nlohmann::ordered_json& json, engine::LanguageModel& model, const Defaults& defaults,
                     bool limited = true);

}  // namespace braid::serve
