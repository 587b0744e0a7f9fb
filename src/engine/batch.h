// Answers to many prompts, as many at a time as the runner has sequences: when one ends, the next prompt takes its
// place, and is read in the same passes in which the others step. By the row contract an answer is the same whatever
// stands beside it.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/runner.h"
#include "sys/function_ref.h"

namespace braid::engine {

// Greedy continuations, each up to an end token (which is left out), `tokens_max` or the context. A prompt that leaves
// no room for an answer gets none. `progress` is told the answers done so far; false stops, and the rest stay empty.
// All sequences are reset.
std::vector<std::vector<int32_t>> generate_all(Runner& runner, std::span<const std::vector<int32_t>> prompts,
                                               int64_t tokens_max, const sys::FunctionRef<bool(int64_t)>& progress);

}  // namespace braid::engine
