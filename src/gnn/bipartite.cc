#include "gnn/bipartite.h"

#include <utility>

#include "sys/check.h"

namespace braid::gnn {
namespace {

constexpr size_t kSageParams = 3;

// Those of a layer: to B, to A.
std::pair<LayerSpec, LayerSpec> directions(const BipartiteSpec& s, int64_t layer) {
  const int64_t a = layer == 0 ? s.features_a : s.hidden, b = layer == 0 ? s.features_b : s.hidden,
                out = layer + 1 == s.layers ? s.out : s.hidden;
  return {{.kind = Kind::sage, .in = a, .out = out, .in_dst = b, .aggregate = s.aggregate},
          {.kind = Kind::sage, .in = b, .out = out, .in_dst = a, .aggregate = s.aggregate}};
}

}  // namespace

std::vector<LayerParam> params_of(const BipartiteSpec& spec) {
  std::vector<LayerParam> all;
  for (int64_t i = 0; i < spec.layers; ++i) {
    const auto [to_b, to_a] = directions(spec, i);
    for (const auto& [name, layer] : {std::pair("to_b", to_b), std::pair("to_a", to_a)}) {
      for (LayerParam& p : params_of(layer)) {
        p.name = std::to_string(i) + "." + name + "." + p.name;
        all.push_back(std::move(p));
      }
    }
  }
  return all;
}

BipartiteNetwork::BipartiteNetwork(const BipartiteSpec& spec, std::span<Param> params) : spec_(spec), params_(params) {
  CHECK(std::ssize(params) == 2 * spec.layers * static_cast<int64_t>(kSageParams), "{} parameters", params.size());
}

BipartiteNetwork::Pair BipartiteNetwork::forward(Run& run, const Block& to_b, const Block& to_a, Pair x) const {
  constexpr uint32_t kUse = 0x676e6e62;  // "gnnb": no other op draws with it
  for (int64_t i = 0; i < spec_.layers; ++i) {
    const bool last = i + 1 == spec_.layers;
    const DType out = last ? DType::f32 : run.numerics.activations;
    const auto [b_spec, a_spec] = directions(spec_, i);
    const std::span<Param> own = params_.subspan(2 * kSageParams * static_cast<size_t>(i), 2 * kSageParams);
    Pair y{.a = sage_forward(run, to_a, x.b, x.a, a_spec, own.subspan(kSageParams), out),
           .b = sage_forward(run, to_b, x.a, x.b, b_spec, own.first(kSageParams), out)};
    if (last) return y;
    const auto between = [&](const Tensor& t, const SeqMap& rows, int64_t number) {
      Run side{.ctx = run.ctx, .seqs = rows, .state = run.state, .numerics = run.numerics, .draws = run.draws};
      return nn::dropout(side, nn::act(side, t, {}, Act::relu), spec_.dropout, static_cast<uint32_t>(number), kUse);
    };
    x = {.a = between(y.a, to_a.receivers, 2 * i), .b = between(y.b, to_b.receivers, 2 * i + 1)};
  }
  return x;
}

}  // namespace braid::gnn
