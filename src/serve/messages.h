// Anthropic's Messages. https://docs.anthropic.com/en/api/messages
#pragma once
#include <memory>
#include <string>

#include "serve/asked.h"
#include "serve/block_stream.h"

namespace braid::serve {

// ApiError for a body that is not such a request. `limited`: and for one that leaves no room for an answer.
Asked read_messages(const std::string& body, engine::LanguageModel& model, const Defaults& defaults,
                    bool limited = true);
std::unique_ptr<BlockStream> messages_stream(Asked asked);

// The body of an error on these routes.
nlohmann::ordered_json messages_error_json(int status, const std::string& message);

}  // namespace braid::serve
