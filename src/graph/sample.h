// Neighbour sampling (Hamilton et al., arXiv 1706.02216, section 3.1): the part of a graph that a batch of nodes sees
// when every node listens to at most a few neighbours, drawn anew for each layer and step. Which edges of a node are
// drawn is a function of (seed, step, layer, edge) alone: of those with the smallest random numbers. So neither the
// batch nor the order of its nodes changes what a node draws.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "graph/graph.h"

namespace braid::graph {

struct SampleKey {
  uint64_t seed = 0, step = 0;
};

struct Sample {
  std::vector<Graph> blocks{};   // of the first layer first; the rows of each are the first of its columns
  std::vector<int32_t> nodes{};  // the columns of the first block, as numbered in the graph
};

// `seeds` are distinct: the rows of the last block. At least one layer; `most` neighbours of a node, from 1.
Sample sample_neighbours(const Csr& in, std::span<const int32_t> seeds, int64_t layers, int64_t most,
                         const SampleKey& key);

}  // namespace braid::graph
