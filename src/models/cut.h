// A model's config as one rank of several has it: blocks with fewer heads, groups, channels or rows of the vocabulary,
// whose outputs add up to the whole's (core/param.h, Shard). A block that does not divide stays whole on every rank.
// Experts divide with their block, or apart from it (ExpertCut, nn/expert_parallel.h).
#pragma once
#include "models/config.h"

namespace braid::models {

// Error when the model has what needs more than a sum: biases on the outputs of blocks, or a vocabulary that is smaller
// than the number of ranks; or experts that do not divide.
Config cut_config(const Config& whole, const Cut& cut, const ExpertCut& experts = {});

bool has_experts(const Config& config);

// As one stage of a pipeline has it: layers of other stages do nothing, so that all keep their numbers and names. Error
// for recurrent depth.
Config stage_config(const Config& whole, const Stage& stage);

}  // namespace braid::models
