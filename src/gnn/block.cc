#include "gnn/block.h"

#include <cmath>
#include <utility>

#include "sys/check.h"

namespace braid::gnn {

namespace {

Block plain_block(graph::Graph graph, sparse::Use use) {
  Block block{.graph = std::move(graph)};
  block.plans = std::make_unique<sparse::Plans>(
      sparse::Plans{.in = sparse::Plan(block.graph.in, use), .out = sparse::Plan(block.graph.out, use)});
  block.receivers = SeqMap::one(block.rows());
  block.senders = SeqMap::one(block.cols());
  return block;
}

}  // namespace

Block make_sampled_block(graph::Graph graph) { return plain_block(std::move(graph), sparse::Use::once); }

Block make_block(graph::Graph graph) {
  Block block = plain_block(std::move(graph), sparse::Use::often);
  const graph::Csr& in = block.graph.in;
  CHECK(in.rows == in.cols, "a whole graph of {} rows and {} columns", in.rows, in.cols);
  std::vector<float> root;
  root.reserve(static_cast<size_t>(in.rows));
  for (int64_t i = 0; i < in.rows; ++i) root.push_back(1 / std::sqrt(static_cast<float>(in.degree(i) + 1)));
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
