// Network: layers of one kind with an activation between them, ELU for gat and ReLU for the others. The last layer's
// channels are the classes; gat's has one head.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "gnn/layer.h"

namespace braid::gnn {

struct NetworkSpec {
  Kind kind = Kind::gcn;
  int64_t layers = 2, features = 0, hidden = 0, classes = 0;  // hidden: channels between layers, of each head in gat
  int64_t heads = 1, kernels = 1;
  float eps = 0, dropout = 0;
  Reduce aggregate = Reduce::sum;
};

std::optional<Kind> kind_of(std::string_view name);  // "gcn", "sage", "gin", "gat", "edgeconv", "monet"
std::vector<LayerSpec> layers_of(const NetworkSpec& spec);
// Of all layers, with the number of their layer before their names: "0.lin.weight".
std::vector<LayerParam> params_of(const NetworkSpec& spec);

class Network {
 public:
  // `params` in the order of params_of; they outlive this.
  Network(const NetworkSpec& spec, std::span<Param> params);
  // One block per layer, or one for all; x in Numerics::products. The logits [rows of the last block, classes] in F32.
  // Between layers a fraction of the channels is dropped if the pass draws random numbers.
  Tensor forward(Run& run, std::span<const Block* const> blocks, Tensor x) const;

 private:
  NetworkSpec spec_;
  std::vector<std::unique_ptr<Layer>> layers_;
};

}  // namespace braid::gnn
