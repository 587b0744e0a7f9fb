// Generated graphs. Every edge and every feature draws from a Philox counter of its own number, so that threads (0: as
// many as sys::default_threads()) change nothing. All edges go both ways.
#pragma once
#include <cstdint>

#include "graph/graph_data.h"

namespace braid::graph {

// R-MAT (Chakrabarti, Zhan, Faloutsos 2004) with Graph500's quadrants (0.57, 0.19, 0.19, 0.05): heavy-tailed degrees
// and many nodes without edges. 2^scale nodes, `factor` edges drawn per node before repetitions are dropped; numbers of
// nodes are permuted.
Csr rmat_graph(int scale, int64_t factor, uint64_t seed, int threads = 0);

// `edges` pairs drawn uniformly (Erdos, Renyi).
Csr uniform_graph(int64_t nodes, int64_t edges, uint64_t seed, int threads = 0);

// Degrees with a power-law tail of mean `degree` and, deviation over mean, `spread`, given to nodes in random order;
// the ends of edges are matched at random (Molloy, Reed 1995). Spread 0: all degrees are equal. Self-loops and
// repetitions are dropped, which costs hubs some of their edges where the tail is heavy.
struct PowerLaw {
  int64_t nodes = 1024;
  double degree = 10, spread = 1;
  uint64_t seed = 0;
};
Csr power_law_graph(const PowerLaw& model, int threads = 0);

// The neighbours on a grid: up to four.
Csr grid_graph(int64_t width, int64_t height);

// A cube of side^3 nodes, each joined to the up to 26 around it: the 27-point stencil of finite elements.
Csr stencil_graph(int64_t side);

// Nodes whose numbers are at most `reach` apart.
Csr band_graph(int64_t nodes, int64_t reach);

// A path, and a shortcut over up to 64 nodes for every 20 of them: a mean degree of 2.1, as road networks have.
Csr road_graph(int64_t nodes, uint64_t seed, int threads = 0);

// Node 0 is joined to half of the others, which have no other edge: the worst balance.
Csr star_graph(int64_t nodes);

// A contextual stochastic block model (Deshpande et al., arXiv 1807.09596): nodes have a class, an edge has both ends
// in one with probability `homophily` and else at random, and features are the class's mean, `signal` long, plus normal
// noise. How well a class is told from features alone, and from those of neighbours, is a choice. With `spread` nodes
// draw edges in proportion to weights of that deviation over mean (degree-corrected: Karrer, Newman, arXiv 1008.3926).
struct BlockModel {
  int64_t nodes = 1000, classes = 4, features = 16;
  double degree = 10, homophily = 0.8, signal = 1, spread = 0;
  double train = 0.5;  // share of nodes to train on
  uint64_t seed = 0;
};
GraphData block_model(const BlockModel& model, int threads = 0);

// Nodes of a known class are trained on with probability `share`; the others are held out.
void choose_training(GraphData& data, double share, uint64_t seed);

}  // namespace braid::graph
