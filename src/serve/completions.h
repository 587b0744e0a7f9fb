// OpenAI's completions, in the form that evaluation harnesses use: prompts as text or token ids, one or many, `echo`
// and the log-probabilities of prompts. https://platform.openai.com/docs/api-reference/completions
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "serve/answer_stream.h"
#include "serve/asked.h"

namespace braid::serve {

// One for each prompt; ApiError for a body that is not such a request or leaves no room for an answer.
std::vector<Asked> read_completions(const std::string& body, engine::LanguageModel& model, const Defaults& defaults);

// `said` and `outcomes` are those of every answer, n for each prompt.
nlohmann::ordered_json completions_json(const std::vector<Asked>& asked, const std::vector<Said>& said,
                                        const std::vector<const Outcome*>& outcomes, engine::LanguageModel& model);
std::unique_ptr<AnswerStream> completions_stream(std::vector<Asked> asked, engine::LanguageModel& model);

}  // namespace braid::serve
