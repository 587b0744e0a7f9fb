// OpenAI's Responses. https://platform.openai.com/docs/api-reference/responses
#pragma once
#include <memory>
#include <string>

#include "serve/asked.h"
#include "serve/block_stream.h"

namespace braid::serve {

struct ResponsesRequest {
  Asked asked{};
  nlohmann::ordered_json echo{};  // what the answer repeats of the request
};

// ApiError for a body that is not such a request, or that needs answers kept here (`previous_response_id`).
ResponsesRequest read_responses(const std::string& body, engine::LanguageModel& model, const Defaults& defaults);
std::unique_ptr<BlockStream> responses_stream(ResponsesRequest request, engine::LanguageModel& model);

}  // namespace braid::serve
