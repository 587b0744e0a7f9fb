// The answers of OpenAI's chat completions, whole or streamed.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "serve/answer_stream.h"
#include "serve/asked.h"

namespace braid::serve {

// `said` and `outcomes` are those of the n answers.
nlohmann::ordered_json chat_json(const Asked& asked, const std::vector<Said>& said,
                                 const std::vector<const Outcome*>& outcomes, engine::LanguageModel& model);
std::unique_ptr<AnswerStream> chat_stream(Asked asked, engine::LanguageModel& model);

}  // namespace braid::serve
