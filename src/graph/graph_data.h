// A graph with what is learnt on it. Read from one safetensors file:
//   rowptr [n + 1] I64   row i of col are the sources of messages to node i, ascending
//   col    [edges] I64
//   edge_weight [edges] F32  of the edges, all finite; missing: 1
//   x      [n, d]  F32   features, all finite
//   y      [n]     I64   classes from 0; -1: unknown
//   train  [n]     I64   1: in the loss; others of a known class are held out. Missing: all are trained on
// Task::graph: classes of whole graphs, which the file has one after the other:
//   batch  [n]     I64   the number of the graph of each node, ascending; no edge leaves its graph
//   y, train [graphs]    of graphs. A graph may have no node
// Task::edge: edges are predicted; neither y nor train. With two types of nodes, rows are those of the second:
//   x      [sources, d], x_dst [n, d2] F32
// Other tensors are ignored. The file is untrusted: everything is checked, and whatever is wrong is an Error.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "io/safetensors.h"

namespace braid::graph {

enum class Task : uint8_t { node, edge, graph };

struct GraphData {
  Graph graph;
  int64_t features = 0, classes = 0;
  int64_t features_dst = 0;          // with two types of nodes
  std::vector<float> x{};            // [nodes, features]
  std::vector<float> x_dst{};        // [rows, features_dst]
  std::vector<int32_t> y{};          // of nodes, or graphs; -1: unknown
  std::vector<uint8_t> train{};      // as y
  std::vector<int64_t> begin{};      // [graphs + 1], the first node of each graph; empty: there is one
  std::vector<std::string> notes{};  // what a reader changed, a line each

  int64_t nodes() const { return features > 0 ? std::ssize(x) / features : graph.cols(); }
  bool bipartite() const { return features_dst > 0; }
};

inline constexpr int64_t kMostClasses = 1 << 20;
// Error, naming the first, unless all are finite. [nodes, width]
void check_features(std::span<const float> x, int64_t width, std::string_view where);

// `classes`: those that a network knows, which is to be run and not to be trained: y may be missing, or have unknown
// classes alone. 0: as many as the file has.
GraphData read_graph(const std::filesystem::path& path, Task task = Task::node, int64_t classes = 0);
// The same from the tensors of a file; `where` names it.
GraphData graph_of(const std::vector<io::StoredTensor>& tensors, const std::string& where, Task task = Task::node,
                   int64_t classes = 0);

}  // namespace braid::graph
