// Full-graph training on a grid of x * y * z ranks (Plexus, arXiv 2505.04083, section 3): every rank has a block of
// nodes and edges, of the channels of every activation, and of each weight. In a layer the three axes are
//   outer o   columns of the adjacency, and channels of the outputs
//   inner i   channels of the inputs
//   depth d   rows of the adjacency, and shards of the weight
// With N nodes and D -> D' channels a rank has  H [N/o, D/i],  A [N/d, N/o],  W [D'/o, D/i] of which it stores 1/d.
//   forward    S = sum over o of A H,  W from all d,  Y = sum over i of S W^T, [N/d, D'/o]
//   backward   dW = dY^T S, summed and divided over d;  dS = sum over o of dY W;  dH = sum over d of A^T dS
// With (o, i, d) = (x, y, z), (z, x, y), (y, z, x), (x, y, z), ... by layer, Y is where the next layer reads its H:
// nothing is laid out anew, and there are three blocks of the adjacency, whatever the number of layers. Features of
// the first layer are divided over d, too, and gathered there; they are not trained, so its dS and dH are not needed.
// Here the weight of a layer is gathered once a step, and kept for the backward pass; Plexus gathers it again.
//
// sage has two weights, cut alike: beside A, which then has its own edge weights, an identity instead of A takes
// the nodes' own rows to where Y is, and Y = sum over i of (A H W_l^T + H W_r^T).
//
// Nothing needs to divide: shares are as even as can be (core/param.h, share_of). Consecutive ranks are y, then x, then
// z (section 4.2 there: y's messages are the most).
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/group.h"
#include "core/seq_map.h"
#include "gnn/network.h"
#include "graph/graph.h"
#include "sparse/plan.h"

namespace braid::gnn {

struct GridShape {
  int64_t x = 1, y = 1, z = 1;
  int64_t ranks() const { return x * y * z; }
};

// What the axes are to a layer: roles rotate from one to the next.
template <class Axis>
struct GridRoles {
  Axis outer, inner, depth;
};
template <class Axis>
GridRoles<Axis> rotated(Axis x, Axis y, Axis z, int64_t layer) {
  if (layer % 3 == 0) return {x, y, z};
  if (layer % 3 == 1) return {z, x, y};
  return {y, z, x};
}
inline GridRoles<int64_t> roles_of(const GridShape& shape, int64_t layer) {
  return rotated(shape.x, shape.y, shape.z, layer);
}

// What a network over so many nodes has fewer of than an axis has ranks.
struct GridLack {
  const char* what = "";
  int64_t ranks = 0, most = 0;
};
std::optional<GridLack> why_not(const NetworkSpec& spec, int64_t nodes, const GridShape& shape);
// Error for that.
void check_grid(const NetworkSpec& spec, int64_t nodes, const GridShape& shape);

// The axes as one rank sees them.
class GridRanks {
 public:
  GridRanks(comm::Group& world, const GridShape& shape);  // as many ranks

  using Roles = GridRoles<comm::Group&>;
  Roles roles(int64_t layer);
  const GridShape& shape() const { return shape_; }

 private:
  GridShape shape_;
  comm::Group x_, y_, z_;
};

// What a rank has of the weight [outputs, inputs] of a layer: rows `own` of the rows `block` that its depth has
// together, and columns `cols`. Its bias is `block`.
struct WeightPart {
  Range block{}, own{}, cols{};
};
WeightPart weight_part(const LayerSpec& layer, const GridRanks::Roles& roles);

// The edges of a role, rows by depth and columns by outer, with their weights, and the self-loops inside: gcn's; sage's
// are 1 or 1 / degree, without self-loops.
struct GridBlock {
  graph::Graph graph{};
  std::unique_ptr<sparse::Plans> plans{};  // null: without edges
  SeqMap receivers{};
  std::vector<float> norm{}, self_norm{};
  int64_t self_row = 0, self_source = 0;  // of the first self-loop
};
// Of a whole graph with its nodes in `order`.
std::unique_ptr<const GridBlock> make_grid_block(const NetworkSpec& spec, const graph::Csr& csr,
                                                 std::span<const int32_t> order, const Range& rows, const Range& cols);
// No edges, and self-loops of weight 1.
std::unique_ptr<const GridBlock> make_own_rows(const Range& rows, const Range& cols);

class GridNetwork {
 public:
  // Params: those of each layer, parts of those of params_of(spec). All outlive this. A backward pass
  // overwrites the gradients of weights.
  GridNetwork(const NetworkSpec& spec, int64_t nodes, GridRanks& ranks, std::span<Param> params);
  // Cuts the blocks that this rank needs; the graph is not read afterwards.
  void cut(const graph::Csr& csr, std::span<const int32_t> order);

  // Nodes (by their position in the order) and channels of this rank's features and logits.
  struct Part {
    Range nodes{}, channels{};
  };
  Part input() const;
  Part output() const;
  // x: input(), in Numerics::products -> output() in F32; the ranks of the inner axis have the same. Between layers a
  // fraction of the channels is dropped if the pass draws; which ones depends on the grid.
  Tensor forward(Run& run, Tensor x) const;
  // Those that have the other classes of output(), and the other nodes.
  comm::Group& class_ranks() const { return ranks_.roles(spec_.layers - 1).outer; }
  comm::Group& node_ranks() const { return ranks_.roles(spec_.layers - 1).depth; }

 private:
  Range nodes_of(const comm::Group& ranks) const;
  Tensor layer(Run& run, int64_t number, Tensor h) const;

  NetworkSpec spec_;
  int64_t nodes_;
  GridRanks& ranks_;
  std::span<Param> params_;
  std::vector<LayerSpec> layers_;
  std::array<std::shared_ptr<const GridBlock>, 3> blocks_;  // by role; shared by those with the same rows and columns
  std::array<std::unique_ptr<const GridBlock>, 3> own_;     // of sage
};

}  // namespace braid::gnn
