#include "gnn/network.h"

#include <array>
#include <utility>

#include "sys/check.h"

namespace braid::gnn {

std::optional<Kind> kind_of(std::string_view name) {
  constexpr std::array<std::string_view, 6> kNames = {"gcn", "sage", "gin", "gat", "edgeconv", "monet"};
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Kind>(i);
  }
  return std::nullopt;
}

std::vector<LayerSpec> layers_of(const NetworkSpec& spec) {
  std::vector<LayerSpec> layers;
  int64_t in = spec.features;
  for (int64_t i = 0; i < spec.layers; ++i) {
    const bool last = i == spec.layers - 1;
    const int64_t heads = spec.kind == Kind::gat && !last ? spec.heads : 1;
    const int64_t out = last ? spec.classes : heads * spec.hidden;
    layers.push_back({.kind = spec.kind,
                      .in = in,
                      .out = out,
                      .heads = heads,
                      .kernels = spec.kernels,
                      .eps = spec.eps,
                      .aggregate = spec.aggregate});
    in = out;
  }
  return layers;
}

std::vector<LayerParam> params_of(const NetworkSpec& spec) {
  std::vector<LayerParam> all;
  const std::vector<LayerSpec> layers = layers_of(spec);
  for (size_t i = 0; i < layers.size(); ++i) {
    for (LayerParam& p : params_of(layers[i])) {
      p.name = std::to_string(i) + "." + p.name;
      all.push_back(std::move(p));
    }
  }
  return all;
}

Network::Network(const NetworkSpec& spec, std::span<Param> params) : spec_(spec) {
  for (const LayerSpec& layer : layers_of(spec)) {
    const size_t count = params_of(layer).size();
    CHECK(count <= params.size(), "{} parameters left of {}", params.size(), count);
    layers_.push_back(make_layer(layer, params.first(count)));
    params = params.subspan(count);
  }
}

Tensor Network::forward(Run& run, std::span<const Block* const> blocks, Tensor x) const {
  CHECK(blocks.size() == 1 || blocks.size() == layers_.size(), "{} blocks", blocks.size());
  constexpr uint32_t kUse = 0x676e6e64;  // "gnnd": no other op draws with it
  for (size_t i = 0; i < layers_.size(); ++i) {
    const bool last = i + 1 == layers_.size();
    const Block& block = *blocks[blocks.size() == 1 ? 0 : i];
    x = layers_[i]->forward(run, block, x, last ? DType::f32 : run.numerics.activations);
    if (last) continue;
    x = nn::act(run, x, {}, spec_.kind == Kind::gat ? Act::elu : Act::relu);
    Run own{.ctx = run.ctx, .seqs = block.receivers, .state = run.state, .numerics = run.numerics, .draws = run.draws};
    x = nn::dropout(own, x, spec_.dropout, static_cast<uint32_t>(i), kUse);
  }
  return x;
}

}  // namespace braid::gnn
