#include "graph/batch.h"

namespace braid::graph {

GraphBatch batch_of(const GraphData& data, const Csr& in, std::span<const int32_t> graphs) {
  GraphBatch batch;
  for (const int32_t graph : graphs) {
    const auto begin = static_cast<int32_t>(data.begin[static_cast<size_t>(graph)]),
               end = static_cast<int32_t>(data.begin[static_cast<size_t>(graph) + 1]);
    const auto first = static_cast<int32_t>(batch.nodes.size());
    for (int32_t node = begin; node < end; ++node) {
      batch.members.col.push_back(static_cast<int32_t>(batch.nodes.size()));
      batch.nodes.push_back(node);
      if (!in.loop.empty()) batch.edges.loop.push_back(in.loop_of(node));
      for (int64_t e = in.rowptr[static_cast<size_t>(node)]; e < in.rowptr[static_cast<size_t>(node) + 1]; ++e) {
        batch.edges.col.push_back(in.col[static_cast<size_t>(e)] - begin + first);
        if (!in.weight.empty()) batch.edges.weight.push_back(in.weight_of(e));
      }
      batch.edges.rowptr.push_back(batch.edges.edges());
    }
    batch.members.rowptr.push_back(batch.members.edges());
  }
  batch.edges.rows = batch.edges.cols = batch.members.cols = std::ssize(batch.nodes);
  batch.members.rows = std::ssize(graphs);
  return batch;
}

}  // namespace braid::graph
