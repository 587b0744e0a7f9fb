#include "gnn/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "sys/check.h"

namespace braid::gnn {

std::span<const std::string_view> kind_names() {
  static constexpr std::array<std::string_view, 6> kNames = {"gcn", "sage", "gin", "gat", "edgeconv", "monet"};
  return kNames;
}

std::optional<Kind> kind_of(std::string_view name) {
  const auto names = kind_names();
  const auto found = std::ranges::find(names, name);
  return found == names.end() ? std::nullopt : std::optional(static_cast<Kind>(found - names.begin()));
}

std::vector<LayerSpec> layers_of(const NetworkSpec& spec) {
  std::vector<LayerSpec> layers;
  int64_t in = spec.features;
  for (int64_t i = 0; i < spec.layers; ++i) {
    const bool last = i == spec.layers - 1;
    const int64_t heads = spec.kind == Kind::gat && !last ? spec.heads : 1;
    const int64_t out = !last ? heads * spec.hidden : spec.readout ? spec.hidden : spec.classes;
    layers.push_back({.kind = spec.kind,
                      .in = in,
                      .out = out,
                      .heads = heads,
                      .attention_dropout = spec.attention_dropout,
                      .number = i,
                      .kernels = spec.kernels,
                      .eps = spec.eps,
                      .aggregate = spec.aggregate,
                      .first = i == 0,
                      .rewrites = spec.rewrites});
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
  if (!spec.readout) return all;
  const double bound = 1 / std::sqrt(static_cast<double>(spec.hidden));
  all.push_back({.name = "lin.weight", .shape = {spec.classes, spec.hidden}, .matrix = true, .bound = bound});
  all.push_back({.name = "lin.bias", .shape = {spec.classes}, .bound = bound});
  return all;
}

bool names_param(std::string_view name) {
  const size_t dot = name.find('.');
  if (dot == 0 || dot == std::string_view::npos) return false;
  const std::string_view first = name.substr(0, dot);
  return first == "lin" || std::all_of(first.begin(), first.end(), [](char c) { return c >= '0' && c <= '9'; });
}

Network::Network(const NetworkSpec& spec, std::span<Param> params) : spec_(spec) {
  for (const LayerSpec& layer : layers_of(spec)) {
    const size_t count = params_of(layer).size();
    CHECK(count <= params.size(), "{} parameters left of {}", params.size(), count);
    layers_.push_back(make_layer(layer, params.first(count)));
    params = params.subspan(count);
  }
  head_ = params;
  CHECK(head_.size() == (spec.readout ? 2u : 0u), "{} parameters of the head", head_.size());
}

Tensor Network::dropped(Run& run, const SeqMap& rows, const Tensor& x, int64_t layer) const {
  constexpr uint32_t kUse = 0x676e6e64;  // "gnnd": no other op draws with it
  Run own{.ctx = run.ctx, .seqs = rows, .state = run.state, .numerics = run.numerics, .draws = run.draws};
  return nn::dropout(own, x, spec_.dropout, static_cast<uint32_t>(layer), kUse);
}

Tensor Network::forward(Run& run, std::span<const Block* const> blocks, Tensor x, const Block* members) const {
  CHECK(blocks.size() == 1 || blocks.size() == layers_.size(), "{} blocks", blocks.size());
  CHECK(spec_.readout.has_value() == (members != nullptr), "members without a readout, or the reverse");
  if (run.ctx.tape && !spec_.rewrites.first) run.ctx.tape->require_grad(x);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const bool last = i + 1 == layers_.size();
    const Block& block = *blocks[blocks.size() == 1 ? 0 : i];
    x = layers_[i]->forward(run, block, x, last ? DType::f32 : run.numerics.activations);
    if (last) break;
    x = nn::act(run, x, {}, spec_.kind == Kind::gat ? Act::elu : Act::relu);
    x = dropped(run, block.receivers, x, static_cast<int64_t>(i));
  }
  if (!members) return x;
  x = aggregate(run, *members, x, {.reduce = *spec_.readout}, run.numerics.products);
  x = dropped(run, members->receivers, x, spec_.layers);
  Run own{.ctx = run.ctx, .seqs = members->receivers, .state = run.state, .numerics = run.numerics};
  return nn::linear(own, x, head_[0], DType::f32, &head_[1]);
}

StepCount count_step(const NetworkSpec& spec, const graph::Graph& graph, std::span<Param> params,
                     const Numerics& numerics) {
  const Block block = block_for(spec.kind, spec.rewrites, graph, sparse::Use::once);
  Arena arena;
  Tape tape;
  std::vector<Choice> choices;
  Ctx ctx{.arena = arena, .threads = 1, .tape = &tape, .dry = &choices};
  nn::StateView none;
  Run run{.ctx = ctx, .seqs = block.senders, .state = none, .numerics = numerics};
  const Block* blocks[] = {&block};
  {
    const Tensor y =
        Network(spec, params).forward(run, blocks, Tensor(arena, numerics.products, {graph.cols(), spec.features}));
    tape.add_grad(ctx, y, Tensor(arena, DType::f32, y.shape()));
  }
  tape.backward(ctx);
  tape.clear();
  return {.flops = ctx.counts.flops, .bytes = ctx.counts.bytes, .memory = arena.bytes_peak()};
}

std::vector<std::string> explain_rewrites(const NetworkSpec& spec, const graph::Graph& graph, std::span<Param> params,
                                          const Numerics& numerics) {
  const StepCount own = count_step(spec, graph, params, numerics);
  constexpr double kMega = 1e6;
  std::vector<std::string> lines = {
      fmt::format("a step: {:.1f} million operations, {:.1f} MB of operands, {:.1f} MB of memory", own.flops / kMega,
                  static_cast<double>(own.bytes) / kMega, static_cast<double>(own.memory) / kMega)};
  for (const RewriteName& name : rewrite_names()) {
    if (!(spec.rewrites.*(name.on))) {
      lines.push_back(fmt::format("{} is off: {}", name.name, name.what));
      continue;
    }
    NetworkSpec without = spec;
    without.rewrites.*(name.on) = false;
    const StepCount other = count_step(without, graph, params, numerics);
    if (other.flops == own.flops && other.bytes == own.bytes && other.memory == own.memory) continue;
    lines.push_back(fmt::format("{} ({}): without it {:.2f} times the operations, {:.2f} the bytes, {:.2f} the memory",
                                name.name, name.what, other.flops / own.flops,
                                static_cast<double>(other.bytes) / static_cast<double>(own.bytes),
                                static_cast<double>(other.memory) / static_cast<double>(own.memory)));
  }
  return lines;
}

}  // namespace braid::gnn
