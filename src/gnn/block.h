// Block: the edges that one layer of a graph network passes messages along, with what layers derive from degrees. The
// nodes that receive are the first rows of those that send; in a whole graph they are the same.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "core/seq_map.h"
#include "graph/graph.h"
#include "sparse/plan.h"

namespace braid::gnn {

struct EdgeBlock;

// What a layer derives from degrees: they are as large as the graph.
enum class EdgeValues : uint8_t { none, norm, pseudo };

struct Block {
  graph::Graph graph;
  std::unique_ptr<sparse::Plans> plans{};  // of aggregation
  SeqMap receivers{}, senders{};           // rows and columns, as the rows of products
  // As EdgeValues says, with a self-loop of each node: degrees d, those of the whole graph, count it.
  std::vector<float> norm{};       // [edges] w_ij / sqrt(d_i d_j), GCN's weights; add_sampled_values
  std::vector<float> self_norm{};  // [rows] w_ii / d_i, with a self-loop's weight w_ii (graph::Csr::loop)
  std::vector<float> root{};       // [rows] 1 / sqrt(d_i), with either in a whole graph
  std::vector<float> pseudo{};     // [edges, 2] (1 / sqrt(d_i), 1 / sqrt(d_j)), MoNet's coordinates

  // For layers that are not fused (rewrites.h): without and with self-loops as edges. See add_edge_blocks.
  std::unique_ptr<EdgeBlock> plain{}, looped{};

  int64_t rows() const { return graph.rows(); }
  int64_t cols() const { return graph.cols(); }
  View norm_view() const { return values(norm, {graph.edges(), 1}); }
  View self_norm_view() const { return values(self_norm, {rows()}); }
  View pseudo_view() const { return values(pseudo, {graph.edges(), 2}); }

 private:
  static View values(const std::vector<float>& list, const Shape& shape) {
    static constexpr float kNone = 0;
    return view_of(list.empty() ? &kNone : list.data(), shape);
  }
};

// The edges of a block as rows of values in memory, one each.
struct EdgeBlock {
  graph::Graph graph{};
  Block messages{};           // row i receives from the edges of row i: columns are edges
  std::vector<float> norm{};  // with self-loops, where the block has it: of all edges

  View norm_view() const { return view_of(norm.data(), {graph.edges(), 1}); }
};
void add_edge_blocks(Block& block);

// Of a whole graph, for one pass or for many.
Block make_block(graph::Graph graph, EdgeValues values, sparse::Use use = sparse::Use::often);
// Of a part of one, whose degrees say nothing, or between two types of nodes.
Block make_sampled_block(graph::Graph graph, sparse::Use use = sparse::Use::once);
// Gives such a part what `whole`, of which column c is node nodes[c], has: GCN's weights, where k of d neighbours were
// drawn each stands for d / k, so that sums are unbiased; or MoNet's coordinates. Before add_edge_blocks.
void add_sampled_values(Block& block, const Block& whole, std::span<const int32_t> nodes);

// 1 / sqrt(d_i) of every node, where d is the weight of its self-loop (one) and the weights of its edges, as PyTorch
// Geometric's gcn_norm adds them up: 0 where that is 0, and an Error where it is negative.
std::vector<float> gcn_roots(const graph::Csr& csr);

}  // namespace braid::gnn
