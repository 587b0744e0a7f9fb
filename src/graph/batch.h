// Some of the graphs of a file as one: their adjacency matrices are the blocks on the diagonal of its own.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "graph/graph_data.h"

namespace braid::graph {

struct GraphBatch {
  Csr edges{};                   // between the nodes of these graphs, numbered in their order
  Csr members{};                 // row g: the nodes of graph g
  std::vector<int32_t> nodes{};  // as the file numbers them
};

// `graphs`: which of those of `data.begin`, in the order of the rows of `members`; `in` has all edges.
GraphBatch batch_of(const GraphData& data, const Csr& in, std::span<const int32_t> graphs);

}  // namespace braid::graph
