// Importance of what an axis has: channels, heads, experts, layers; and the ranking of it.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "prune/axes.h"

namespace braid::prune {

inline double square(double v) { return v * v; }

struct Scores {
  // By axis and layer, the prediction block's after the last; -1 for `hidden`, which all layers share, and `layers`.
  //   hidden [D], ffn [F], heads [H], experts [E], expert_ffn [E, F], shared_ffn [F], latent [R], layers [L]
  //   mamba_heads [H, P]: channels, from which the ranking of heads and that of channels in a head follow
  std::map<std::pair<Axis, int>, std::vector<double>> of{};
  // What an RMSNorm reads, by the name of its weight in the config: the square of every channel over the mean of
  // squares that it is divided by, averaged over tokens. Empty for scores that no pass gave.
  std::map<std::string, std::vector<double>> energy{};
  // Mamba heads are ranked over all groups of B and C at once. What stays fills the groups in order, so that heads read
  // the B and C of others: a control for the ranking inside groups (arXiv 2504.11409, section 3.1).
  bool ungrouped = false;
};

// As many random numbers as a measurement would give scores; no energies.
Scores random_scores(const models::Config& config, uint64_t seed);

// The indices of the n highest scores, ascending; of equal ones the first.
std::vector<int64_t> keep_best(std::span<const double> scores, int64_t n);
// The same number from each of `groups` equal parts, n in all.
std::vector<int64_t> keep_in_groups(std::span<const double> scores, int64_t groups, int64_t n);
// All indices, the highest score first; of equal parts one after the other.
std::vector<int64_t> ranked(std::span<const double> scores, int64_t groups = 1);

// The first n / groups of each of `groups` equal parts.
std::vector<int64_t> first_in_groups(std::span<const int64_t> order, int64_t groups, int64_t n);

// Of channels [H, P]: the score of a channel over all heads, and of a head over the channels `kept` (root of the sum of
// squares). Channels are ranked for all heads alike, because P is one number.
std::vector<double> channels_over_heads(std::span<const double> scores, int64_t heads);
std::vector<double> heads_over_channels(std::span<const double> scores, int64_t heads, std::span<const int64_t> kept);

}  // namespace braid::prune
