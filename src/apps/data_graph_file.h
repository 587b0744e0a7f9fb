// Graphs in text with .npy files of features and classes, for braid data graph.
#pragma once
#include <cstdint>
#include <string>

#include "graph/graph_data.h"

namespace braid::apps {

// Error unless the value of an option is in range.
void within(const char* option, double value, double least, double most);

// Error for a source that is neither a file nor a kind of graph.
void check_source(const std::string& source);

struct GraphFiles {
  std::string edges, features, classes;  // the last two may be empty
  double train = 0;                      // share of the nodes of known class
  int64_t seed = 0;
  bool directed = false, unweighted = false;
};
// A list of edges names no node without one: features and classes tell how many there are. Prints what it leaves out.
graph::GraphData read_graph_files(const GraphFiles& files);

}  // namespace braid::apps
