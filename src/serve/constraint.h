// What a request says of the form of its answer: response_format, llama-server's json_schema, vLLM's structured_outputs
// and guided_json, guided_regex, guided_choice, and tool_choice with parallel_tool_calls.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>

#include "engine/language_model.h"
#include "grammar/constraint.h"

namespace braid::serve {

// The constraint of the answer to `body`, a request of either kind, compiled; null: none. `tools`: those that the model
// is offered, or null; `thinking`: its prompt ends inside <think>. ApiError or Error for what is not a constraint, or
// not one that can be enforced. From any thread.
std::shared_ptr<const grammar::Constraint> constraint_of(const nlohmann::ordered_json& body,
                                                         const nlohmann::ordered_json& tools, bool thinking,
                                                         engine::LanguageModel& model);

}  // namespace braid::serve
