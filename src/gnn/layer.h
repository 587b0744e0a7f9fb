// The layers of graph networks, by PyTorch Geometric's formulas and parameter names:
//   gcn       D^-1/2 (A + I) D^-1/2 X W^T + b                           (Kipf, Welling, arXiv 1609.02907)
//   sage      W_l aggregate(x_j) + b_l + W_r x_i                        (Hamilton et al., arXiv 1706.02216)
//   gin       MLP((1 + eps) x_i + sum of x_j)                          (Xu et al., arXiv 1810.00826)
//   gat       attention over neighbours and itself, heads concatenated  (Velickovic et al., arXiv 1710.10903)
//   edgeconv  aggregate(W [x_i | x_j - x_i] + b)                        (Wang et al., arXiv 1801.07829)
//   monet     aggregate(sum over k of w_k(u_ij) g_k x_j) + root x_i + b (Monti et al., arXiv 1611.08402)
// Products run on nodes, not on edges, and messages stay in registers, unless a rewrite is off (rewrites.h). A node
// that receives nothing gets 0 from the aggregation, in edgeconv the whole of it.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gnn/ops.h"
#include "gnn/rewrites.h"

namespace braid::gnn {

enum class Kind : uint8_t { gcn, sage, gin, gat, edgeconv, monet };

struct LayerSpec {
  Kind kind = Kind::gcn;
  int64_t in = 0, out = 0;         // channels; with heads, out = heads * channels of each
  int64_t in_dst = 0;              // sage: of nodes that receive, where they are of another type; 0: as in
  int64_t heads = 1;               // gat
  float attention_dropout = 0;     // gat, in passes that draw random numbers; not without Rewrites::fuse and postpone
  int64_t number = 0;              // of the layer in its network, which its draws are for
  int64_t kernels = 1;             // monet
  float eps = 0;                   // gin
  Reduce aggregate = Reduce::sum;  // sage, edgeconv (max or min), monet; the others sum
  bool first = false;              // its inputs are features, which have no gradient
  Rewrites rewrites{};
};

// Whether a layer reads Block::plain and Block::looped.
bool needs_edge_blocks(Kind kind, const Rewrites& rewrites);
// A whole graph, with the values and blocks of edges that layers of a kind need.
Block block_for(Kind kind, const Rewrites& rewrites, graph::Graph graph, sparse::Use use = sparse::Use::often);
// Whether the product of a layer goes before its aggregation, by what a training step costs.
bool product_first(const LayerSpec& spec, const Block& block);

// How a parameter starts: uniform in +-bound, or constant where the bound is 0; and how it divides. Parameters of kinds
// that no grid divides (grid.h) are whole: their graphs have more numbers than all weights together.
struct LayerParam {
  std::string name{};
  Shape shape{};            // as stored
  bool matrix = false;      // products read it
  bool transposed = false;  // stored [inputs, outputs]
  double bound = 0, value = 0;
  Shard shard{.axis = Shard::Axis::whole};  // by outputs
};
// In the order in which a layer takes them, names without the layer's number.
std::vector<LayerParam> params_of(const LayerSpec& spec);

class Layer {
 public:
  virtual ~Layer() = default;
  // x [cols, in] in Numerics::products -> [rows, out] in `out`.
  virtual Tensor forward(Run& run, const Block& block, const Tensor& x, DType out) const = 0;
};

// sage between two types of nodes, PyG's SAGEConv((in, in_dst), out): x [cols, in] of those that send, x_dst
// [rows, in_dst] of those that receive, both in Numerics::products -> [rows, out] in `out`.
Tensor sage_forward(Run& run, const Block& block, const Tensor& x, const Tensor& x_dst, const LayerSpec& spec,
                    std::span<Param> params, DType out);

// `params` in the order of params_of; they outlive the layer.
std::unique_ptr<Layer> make_layer(const LayerSpec& spec, std::span<Param> params);

}  // namespace braid::gnn
