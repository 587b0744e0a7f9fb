// Ranks that answer with one model: which part of it each has. Stages of layers (`pp`) come first: rank s * R + r is
// rank r of the R = max(tp, ep) ranks of stage s. Of these
//   every `tp` consecutive ones divide the heads, channels and vocabulary (Megatron-LM, arXiv 1909.08053, section 3);
//   all R divide the experts of a layer, whole ones over `ep` of them, and of each its width over the R / ep that have
//   the same ones; and the width of the shared expert.
// All have the same tokens, and the outputs of the parts of a block add up (nn/tensor_parallel.h).
//
// Parts may differ by a head or a channel, unlike in training (models/cut.h). Keys and values, and the groups of a
// Mamba block, are on every rank that reads them, but a rank has either whole groups of heads, or heads of one group:
// so 8 heads that share 2 keys and values, or 1, may be divided over 4 ranks, or 5 over 5, but not 8 of 2 over 3.
#pragma once
#include <algorithm>
#include <span>
#include <vector>

#include "models/config.h"

namespace braid::models {

struct Division {
  int64_t tp = 1, pp = 1, ep = 1;

  int64_t stage_ranks() const { return std::max(tp, ep); }
  int64_t ranks() const { return pp * stage_ranks(); }
  int64_t stage(int64_t rank) const { return rank / stage_ranks(); }
  Cut tensor(int64_t rank) const { return {.rank = rank % stage_ranks() % tp, .ranks = tp, .uneven = true}; }
  Cut of_stage(int64_t rank) const { return {.rank = rank % stage_ranks(), .ranks = stage_ranks(), .uneven = true}; }
  ExpertCut experts(int64_t rank) const {
    const int64_t parts = stage_ranks() / ep, place = rank % stage_ranks();
    return {.ep = {.rank = place / parts, .ranks = ep}, .etp = {.rank = place % parts, .ranks = parts}};
  }
};

// Error, naming --tp, --pp or --ep and the nearest number that fits, for what cannot be divided so.
void check_division(const Config& config, const Division& division);

// What one of the ranks has.
Config divided_config(const Config& whole, const Division& division, int64_t rank);

// `runs` consecutive runs of layers, at least one layer each, of which the costliest costs least; `last` is the cost of
// what follows the last layer. There are at least as many layers as runs.
std::vector<Range> split_layers(std::span<const double> costs, double last, int64_t runs);

}  // namespace braid::models
