#include "gnn/block.h"

#include <cmath>
#include <utility>

namespace braid::gnn {

Block make_block(graph::Graph graph, const std::vector<int64_t>* degree) {
  Block block{.graph = std::move(graph)};
  const graph::Csr& in = block.graph.in;
  std::vector<float> root(static_cast<size_t>(in.cols));
  for (size_t j = 0; j < root.size(); ++j) {
    const int64_t d = degree ? (*degree)[j] : in.degree(static_cast<int64_t>(j));
    root[j] = 1 / std::sqrt(static_cast<float>(d + 1));
  }
  block.norm.reserve(in.col.size());
  block.pseudo.reserve(2 * in.col.size());
  for (size_t i = 0; i < static_cast<size_t>(in.rows); ++i) {
    block.self_norm.push_back(root[i] * root[i]);
    for (int64_t e = in.rowptr[i]; e < in.rowptr[i + 1]; ++e) {
      const float source = root[static_cast<size_t>(in.col[static_cast<size_t>(e)])];
      block.norm.push_back(root[i] * source);
      block.pseudo.insert(block.pseudo.end(), {root[i], source});
    }
  }
  return block;
}

}  // namespace braid::gnn
