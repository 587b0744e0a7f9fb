// A graph with what is learnt on it: features of the nodes, classes, and which nodes are trained on. Read from one
// safetensors file:
//   rowptr [n + 1] I64   row i of col are the sources of messages to node i, ascending
//   col    [edges] I64
//   x      [n, d]  F32   features, all finite
//   y      [n]     I64   classes from 0; -1: unknown
//   train  [n]     I64   1: in the loss; other nodes of a known class are held out. Missing: all are trained on
// Other tensors are ignored. The file is untrusted: everything is checked, and whatever is wrong is an Error.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "io/safetensors.h"

namespace braid::graph {

struct GraphData {
  Graph graph;
  int64_t features = 0, classes = 0;
  std::vector<float> x{};            // [nodes, features]
  std::vector<int32_t> y{};          // [nodes], -1: unknown
  std::vector<uint8_t> train{};      // [nodes]
  std::vector<std::string> notes{};  // what a reader changed, a line each

  int64_t nodes() const { return std::ssize(y); }
};

GraphData read_graph(const std::filesystem::path& path);
// The same from the tensors of a file; `where` names it.
GraphData graph_of(const std::vector<io::StoredTensor>& tensors, const std::string& where);

}  // namespace braid::graph
