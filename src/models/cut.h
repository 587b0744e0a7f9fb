// A model's config as one rank of several has it: blocks with fewer heads, groups, channels or rows of the vocabulary,
// whose outputs add up to the whole's (core/param.h, Shard). A block that does not divide stays whole on every rank.
// Experts divide with their block, or apart from it (ExpertCut, nn/expert_parallel.h).
//
// Keys and values, and groups of B and C, that are fewer than ranks are on every rank whose heads read them; the norm
// of such a group then spans its ranks (nn/tensor_parallel.h).
#pragma once
#include "models/config.h"

namespace braid::models {

// Heads of one rank, with what they share: keys and values, or groups of B and C.
struct HeadShare {
  Range heads{}, shared{};
  bool whole = true;  // has all heads of these
};
HeadShare heads_of(int64_t heads, int64_t shared, const Cut& cut);
// Whether all ranks have some heads, of one group or of whole ones.
bool heads_fit(int64_t heads, int64_t shared, int64_t ranks);
// The block with these heads alone.
void take_heads(nn::Mamba2Spec& spec, const Cut& cut);
void take_heads(nn::AttentionSpec& spec, const Cut& cut);

// Error when the model has what needs more than a sum: biases on the outputs of blocks, or a vocabulary that is smaller
// than the number of ranks; or experts that do not divide.
Config cut_config(const Config& whole, const Cut& cut, const ExpertCut& experts = {});

bool has_experts(const Config& config);

// As one stage of a pipeline has it: layers of other stages do nothing, so that all keep their numbers and names. Error
// for recurrent depth.
Config stage_config(const Config& whole, const Stage& stage);

}  // namespace braid::models
