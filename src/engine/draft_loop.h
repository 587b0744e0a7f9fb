// Drafts of a model with recurrent depth by itself, with fewer steps (arXiv 2502.05171, section 5.4). Keys and values
// of a draft's steps are written where the pass that verifies it writes its own, so nothing is undone.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/runner.h"
#include "engine/token_picker.h"

namespace braid::engine {

class LoopDrafter {
 public:
  // Error when the model has no loop of layers or has recurrent states, which a draft would change, or when `steps` are
  // not fewer than the runner's.
  LoopDrafter(Runner& runner, int64_t steps);

  struct Wanted {
    int64_t sequence = 0;
    const TokenPicker* picker = nullptr;  // of the answer; the last token of its text is not read yet
    int64_t tokens = 0;                   // to draft
  };
  std::vector<std::vector<int32_t>> draft(std::span<const Wanted> wanted);

 private:
  Runner& runner_;
  int64_t steps_;
};

}  // namespace braid::engine
