// The requests of OpenAI's chat completions: from JSON to work for the worker.
// https://platform.openai.com/docs/api-reference/chat
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "serve/asked.h"

namespace braid::serve {

// ApiError for a body that is not such a request, asks for what is not there, or leaves no room for an answer.
Asked read_chat(const std::string& body, engine::LanguageModel& model, const Defaults& defaults);
// What surfaces that are translated to chat have of their own.
struct ChatRules {
  bool limited = true;   // refuse what leaves no room for an answer
  size_t name_max = 64;  // characters of a tool's name
};
// The same of a body that another surface has translated.
Asked read_chat_json(const nlohmann::ordered_json& json, engine::LanguageModel& model, const Defaults& defaults,
                     const ChatRules& rules = {});

}  // namespace braid::serve
