// Answers to many prompts with continuous batching, as many at a time as the runner has sequences: when an answer ends,
// the next prompt takes its sequence and is prefilled in the same passes in which the others step. By the row contract
// an answer does not depend on the others in the batch.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/reasoning_budget.h"
#include "engine/runner.h"
#include "sys/function_ref.h"

namespace braid::engine {

// Greedy continuations, each up to an end token (excluded), `tokens_max` or the context. A prompt that leaves no room
// for an answer gets an empty one. `progress` receives the number of finished answers; when it returns false generation
// stops, and the remaining answers are empty. All sequences are reset. `limits`: of the thinking in each answer; empty:
// none.
std::vector<std::vector<int32_t>> generate_all(Runner& runner, std::span<const std::vector<int32_t>> prompts,
                                               int64_t tokens_max, const sys::FunctionRef<bool(int64_t)>& progress,
                                               std::vector<ReasoningLimit> limits = {});

}  // namespace braid::engine
