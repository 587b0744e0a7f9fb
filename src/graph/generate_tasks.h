// Generated graphs for tasks other than blocks of nodes (generate.h): classes of graphs, edges between two types of
// nodes, and a twin of a citation graph. As there, everything draws from Philox counters of its own number.
#pragma once
#include <cstdint>

#include "graph/generate.h"
#include "graph/graph_data.h"

namespace braid::graph {

// Classes of graphs that only their structure tells apart: a random recursive tree with 10 more edges, in class 1 those
// of a clique of 5 nodes, in class 0 drawn uniformly. Nodes have one feature, 1; a graph of n nodes has n + 9 edges in
// either class, and n is drawn alike.
struct MotifGraphs {
  int64_t graphs = 200;
  int64_t nodes = 20;  // of a graph in the mean, at least 16: from 3/5 to 7/5 of it
  double train = 0.5;  // share of graphs to train on
  uint64_t seed = 0;
};
GraphData motif_graphs(const MotifGraphs& model);

// Two types of nodes, `model.nodes` that send and `targets` that receive, each with a class; an edge joins nodes of one
// class with probability `homophily`. `degree` is that of a sender, edges are predicted: no y.
GraphData bipartite_blocks(const BlockModel& model, int64_t targets);

// A twin of Cora (Sen et al. 2008; the split of Yang et al., arXiv 1603.08861): as many nodes, edges, words, classes of
// the same sizes, edges inside classes (81%), and 20 nodes of each class to train on. Words are drawn from topics: one
// of 18 in four from that of the class. Degrees have a heavy tail.
GraphData citation_twin(uint64_t seed);

}  // namespace braid::graph
