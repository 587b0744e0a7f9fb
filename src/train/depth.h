// Training of recurrent depth (arXiv 2502.05171, section 3.3): the steps of a loop of layers are drawn for every
// optimiser step, and only the last of them are differentiated.
#pragma once
#include <cstdint>

#include "core/seq_map.h"
#include "core/tensor.h"
#include "models/config.h"
#include "train/recipe.h"

namespace braid::train {

// The loop of a config with what the recipe changes.
models::LoopSpec loop_of(const Recipe& recipe, const models::LoopSpec& spec);

struct Depth {
  int64_t steps = 0;
  int64_t backward = 0;  // of them the last ones, with gradients
};
// Of step `step` of a run: 1 + Poisson(exp t), t ~ N(log mean - sigma^2 / 2, sigma), at most kLoopSteps.
Depth draw_depth(const models::LoopSpec& spec, double sigma, uint64_t seed, int64_t step);

// Random states [T, D] for the sequences of a batch, by their sample and position.
void fill_starts(const models::LoopSpec& spec, uint64_t key, const SeqMap& seqs, const MutView& states);

}  // namespace braid::train
