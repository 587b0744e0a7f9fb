// Edges of a graph divided into those that messages take and the model trains on, and those that are held out, with
// pairs of nodes that are no edges for comparison; and how well scores tell the two apart.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "graph/graph.h"

namespace braid::train {

struct LinkSplit {
  graph::Csr messages{};                           // the edges without those held out
  std::vector<graph::Edge> trained{}, held_out{};  // one way of a pair that is joined both ways
  bool bipartite = false;
};

// Of each pair of joined nodes, with both of its directions, by a random number of the pair: a share `held_out`. Nodes
// of two types have numbers of their own. `all` is not retained.
LinkSplit split_links(const graph::Csr& all, bool bipartite, double held_out, uint64_t seed);

bool joined(const graph::Csr& csr, const graph::Edge& edge, bool bipartite);

// For each positive a pair that `csr` does not join: both of its ends are drawn, or with nodes of two types the target
// for the positive's source. A function of (seed, step, its place) alone. Where a hundred draws in a row meet edges the
// pair is left out.
std::vector<graph::Edge> draw_negatives(const graph::Csr& csr, std::span<const graph::Edge> positives, bool bipartite,
                                        uint64_t seed, uint64_t step);

// The area under the ROC curve: how often a positive's score is above a negative's, ties counting half. None without
// either.
std::optional<double> auc_of(std::span<const float> positives, std::span<const float> negatives);
// The share of positives above the k-th highest negative, all of them where there are fewer (OGB's Hits@K).
double hits_at(int64_t k, std::span<const float> positives, std::span<const float> negatives);

}  // namespace braid::train
