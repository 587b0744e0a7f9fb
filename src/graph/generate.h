// Generated graphs. Every edge and every feature draws from a Philox counter of its own number, so that threads change
// nothing. All edges go both ways.
#pragma once
#include <cstdint>

#include "graph/graph_data.h"

namespace braid::graph {

// R-MAT (Chakrabarti, Zhan, Faloutsos 2004) with Graph500's quadrants (0.57, 0.19, 0.19, 0.05): heavy-tailed degrees
// and many nodes without edges. 2^scale nodes, `factor` edges drawn per node before repetitions are dropped; numbers of
// nodes are permuted.
Csr rmat_graph(int scale, int64_t factor, uint64_t seed);

// `edges` pairs drawn uniformly (Erdos, Renyi).
Csr uniform_graph(int64_t nodes, int64_t edges, uint64_t seed);

// The neighbours on a grid: up to four.
Csr grid_graph(int64_t width, int64_t height);

// A contextual stochastic block model (Deshpande et al., arXiv 1807.09596): nodes have a class, an edge has both ends
// in one with probability `homophily` and else at random, and features are the class's mean, `signal` long, plus normal
// noise. How well a class is told from features alone, and from those of neighbours, is a choice.
struct BlockModel {
  int64_t nodes = 1000, classes = 4, features = 16;
  double degree = 10, homophily = 0.8, signal = 1;
  double train = 0.5;  // share of nodes to train on
  uint64_t seed = 0;
};
GraphData block_model(const BlockModel& model);

// Nodes of a known class are trained on with probability `share`; the others are held out.
void choose_training(GraphData& data, double share, uint64_t seed);

}  // namespace braid::graph
