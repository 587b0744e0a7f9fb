// Recurrent depth in passes (models/config.h, LoopSpec): how many steps the layers of the loop run, and from which
// states.
#pragma once
#include <cstdint>
#include <vector>

#include "core/seq_map.h"
#include "core/tensor.h"
#include "engine/exit_rule.h"
#include "models/config.h"
#include "nn/run.h"

namespace braid::engine {

struct LoopOptions {
  int64_t steps = 0;   // 0: the model's
  int64_t states = 0;  // keys and values that the loop's layers keep of a token: steps share them; 0: one for each step
  // The states that steps begin with: rows [n, D] for the first n positions of a sequence; then zeros or random ones.
  std::vector<float> start{};
  bool zero = false;
  uint64_t seed = 0;
  // In steps of one token the state of the token before, from the end of its last step.
  bool warm_start = false;
  // In steps of one token of a runner with one sequence: when fewer steps are enough. Prompts take all.
  Exit exit = Exit::never;
  double threshold = 0;  // 0: the rule's own

  // Whether a token's result depends on how its sequence was cut into passes, so that drafts could change a text.
  bool depends_on_cuts() const { return states < steps || warm_start || exit != Exit::never; }
};

// With the model's number of steps, and `states` at most that.
LoopOptions resolved(const models::LoopSpec& spec, LoopOptions options);

// [T, D] F32, for the tokens of a pass.
Tensor start_states(Arena& arena, const models::Config& config, const LoopOptions& options, const SeqMap& seqs);

}  // namespace braid::engine
