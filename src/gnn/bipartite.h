// A network over two types of nodes, A and B, and edges between them: in each layer both types receive from the other,
// by one sage layer each (layer.h, PyG's SAGEConv((in, in_dst), out), Hamilton et al., arXiv 1706.02216), with ReLU
// between layers. A sends along the edges of the graph, B along their reverse.
#pragma once
#include <span>
#include <vector>

#include "gnn/layer.h"

namespace braid::gnn {

struct BipartiteSpec {
  int64_t layers = 2, features_a = 0, features_b = 0, hidden = 0, out = 0;  // out: channels of the last layer
  float dropout = 0;
  Reduce aggregate = Reduce::mean;
};

// Of all layers: "0.to_b.lin_l.weight", ..., "0.to_a.lin_l.weight", ...
std::vector<LayerParam> params_of(const BipartiteSpec& spec);

class BipartiteNetwork {
 public:
  // `params` in the order of params_of; they outlive this.
  BipartiteNetwork(const BipartiteSpec& spec, std::span<Param> params);
  struct Pair {
    Tensor a, b;
  };
  // to_b: a row per node of B, a column per node of A; to_a: the reverse. x in Numerics::products -> [nodes, out] F32.
  // Between layers a fraction of the channels is dropped if the pass draws random numbers.
  Pair forward(Run& run, const Block& to_b, const Block& to_a, Pair x) const;

 private:
  BipartiteSpec spec_;
  std::span<Param> params_;
};

}  // namespace braid::gnn
