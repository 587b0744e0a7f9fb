// Network: layers of one kind with an activation between them, ELU for gat and ReLU for the others. The last layer's
// channels are the classes; gat's has one head. For classes of graphs it has `hidden` channels, which are reduced over
// the nodes of each graph (PyG's global_mean_pool, global_add_pool, global_max_pool) and go through a linear map, lin.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gnn/layer.h"

namespace braid::gnn {

struct NetworkSpec {
  Kind kind = Kind::gcn;
  int64_t layers = 2, features = 0, hidden = 0, classes = 0;  // hidden: channels between layers, of each head in gat
  int64_t heads = 1, kernels = 1;
  float eps = 0, dropout = 0, attention_dropout = 0;
  Reduce aggregate = Reduce::sum;
  std::optional<Reduce> readout{};  // classes of graphs
  Rewrites rewrites{};
};

std::span<const std::string_view> kind_names();  // "gcn", "sage", "gin", "gat", "edgeconv", "monet"
std::optional<Kind> kind_of(std::string_view name);
std::vector<LayerSpec> layers_of(const NetworkSpec& spec);
// Of all layers, with the number of their layer before their names: "0.lin.weight".
std::vector<LayerParam> params_of(const NetworkSpec& spec);

// Whether a file calls a parameter of some network so: "0.lin.weight" or, after a readout, "lin.weight". Files of tests
// have results and gradients besides.
bool names_param(std::string_view name);

// Of a step over a graph in training, from a pass that computes nothing (Ctx::dry). `params` have gradients.
StepCount count_step(const NetworkSpec& spec, const graph::Graph& graph, std::span<Param> params,
                     const Numerics& numerics);

// What each rewrite that is on saves in such a step, a line each, those that save nothing left out.
std::vector<std::string> explain_rewrites(const NetworkSpec& spec, const graph::Graph& graph, std::span<Param> params,
                                          const Numerics& numerics);

class Network {
 public:
  // `params` in the order of params_of; they outlive this.
  Network(const NetworkSpec& spec, std::span<Param> params);
  // One block per layer, or one for all; x in Numerics::products. The logits [rows of the last block, classes] in F32,
  // or with a readout [rows of `members`, classes]: a row of that block names the nodes of a graph.
  // Between layers a fraction of the channels is dropped if the pass draws random numbers, and before lin.
  Tensor forward(Run& run, std::span<const Block* const> blocks, Tensor x, const Block* members = nullptr) const;

 private:
  Tensor dropped(Run& run, const SeqMap& rows, const Tensor& x, int64_t layer) const;

  NetworkSpec spec_;
  std::span<Param> head_;
  std::vector<std::unique_ptr<Layer>> layers_;
};

}  // namespace braid::gnn
