#include "eda/network.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "sys/check.h"

namespace braid::eda {
namespace {

enum Head : size_t { kTable, kRecipeWeight, kRecipeBias, kHiddenWeight, kHiddenBias, kOutWeight, kOutBias, kHeadSize };

std::vector<gnn::LayerSpec> layers_of(const QorSpec& s) {
  std::vector<gnn::LayerSpec> layers;
  for (int64_t i = 0; i < (s.circuits ? s.layers : 0); ++i)
    layers.push_back({.kind = s.kind,
                      .in = i == 0 ? kFeatures : s.hidden,
                      .out = s.hidden,
                      .aggregate = Reduce::mean,
                      .first = i == 0});
  return layers;
}

constexpr uint32_t kUse = 0x716f7264;  // "qord": no other op draws with it

}  // namespace

std::vector<float> features_of(const graph::AigNodes& nodes) {
  const auto n = static_cast<size_t>(nodes.in.rows), width = static_cast<size_t>(kFeatures);
  std::vector<int32_t> fan_out(n);
  for (const int32_t source : nodes.in.col) ++fan_out[static_cast<size_t>(source)];
  std::vector<float> x(n * width);
  for (size_t i = 0; i < n; ++i) {
    float* row = &x[i * width];
    const graph::AigKind kind = nodes.kind[i];
    if (kind != graph::AigKind::constant) row[static_cast<size_t>(kind) - 1] = 1;
    if (kind == graph::AigKind::gate || kind == graph::AigKind::output) row[3 + nodes.inverted[i]] = 1;
    row[6] = static_cast<float>(nodes.level[i]) / static_cast<float>(std::max(nodes.depth, 1));
    row[7] = std::log2(1 + static_cast<float>(fan_out[i])) / 8;
  }
  return x;
}

std::vector<gnn::LayerParam> params_of(const QorSpec& s) {
  std::vector<gnn::LayerParam> all;
  const std::vector<gnn::LayerSpec> layers = layers_of(s);
  for (size_t i = 0; i < layers.size(); ++i) {
    for (gnn::LayerParam& p : gnn::params_of(layers[i])) {
      p.name = std::to_string(i) + "." + p.name;
      all.push_back(std::move(p));
    }
  }
  const auto matrix = [&](const char* name, int64_t out, int64_t in) {
    all.push_back({.name = name, .shape = {out, in}, .matrix = true, .bound = std::sqrt(3 / static_cast<double>(in))});
  };
  const auto vector = [&](const char* name, int64_t out) { all.push_back({.name = name, .shape = {out}}); };
  if (s.circuits) matrix("circuit.weight", s.inner, 2 * s.hidden);
  all.push_back({.name = "steps.weight", .shape = {s.table_rows(), s.width}, .matrix = true, .bound = 1});
  matrix("recipe.weight", s.inner, s.width);
  vector("recipe.bias", s.inner);
  matrix("hidden.weight", s.inner, s.inner);
  vector("hidden.bias", s.inner);
  matrix("out.weight", static_cast<int64_t>(kTargetCount), s.inner);
  vector("out.bias", static_cast<int64_t>(kTargetCount));
  return all;
}

Circuits circuits_of(const Labels& labels, std::span<const int32_t> designs, gnn::Kind kind, sparse::Use use) {
  graph::Csr edges, members;
  Circuits circuits;
  for (const int32_t design : designs) {
    const graph::AigNodes& nodes = labels.designs[static_cast<size_t>(design)].nodes;
    const auto first = static_cast<int32_t>(edges.rows);
    const int64_t before = edges.edges();
    for (int64_t i = 0; i < nodes.in.rows; ++i) {
      members.col.push_back(first + static_cast<int32_t>(i));
      edges.rowptr.push_back(before + nodes.in.rowptr[static_cast<size_t>(i) + 1]);
    }
    for (const int32_t source : nodes.in.col) edges.col.push_back(first + source);
    members.rowptr.push_back(members.edges());
    edges.rows += nodes.in.rows;
    const std::vector<float> x = features_of(nodes);
    circuits.x.insert(circuits.x.end(), x.begin(), x.end());
  }
  edges.cols = members.cols = edges.rows;
  members.rows = std::ssize(designs);
  circuits.edges = gnn::block_for(kind, {}, graph::make_graph(std::move(edges)), use);
  circuits.members = gnn::make_sampled_block(graph::make_graph(std::move(members)), use);
  return circuits;
}

Picks picks_of(const Labels& labels, std::span<const int32_t> recipes, std::span<const int32_t> places,
               int64_t circuits) {
  CHECK(recipes.size() == places.size(), "{} recipes, {} places", recipes.size(), places.size());
  const auto words = static_cast<int32_t>(kSteps.size());
  const auto steps = std::ssize(labels.recipes[0]);
  graph::Csr rows{.rows = std::ssize(recipes), .cols = circuits},
      windows{.rows = std::ssize(recipes) * steps, .cols = kWindow * words + steps},
      of_sample{.rows = std::ssize(recipes), .cols = std::ssize(recipes) * steps};
  for (size_t i = 0; i < recipes.size(); ++i) {
    rows.col.push_back(places[i]);
    rows.rowptr.push_back(rows.edges());
    const Recipe& recipe = labels.recipes[static_cast<size_t>(recipes[i])];
    for (int64_t t = 0; t < steps; ++t) {
      for (int64_t k = 0; k < std::min(kWindow, t + 1); ++k)
        windows.col.push_back(static_cast<int32_t>(k) * words + recipe[static_cast<size_t>(t - k)]);
      windows.col.push_back(static_cast<int32_t>(kWindow * words + t));
      windows.rowptr.push_back(windows.edges());
      of_sample.col.push_back(static_cast<int32_t>(of_sample.edges()));
    }
    of_sample.rowptr.push_back(of_sample.edges());
  }
  return {.circuits = gnn::make_sampled_block(graph::make_graph(std::move(rows))),
          .windows = gnn::make_sampled_block(graph::make_graph(std::move(windows))),
          .steps = gnn::make_sampled_block(graph::make_graph(std::move(of_sample)))};
}

QorNetwork::QorNetwork(const QorSpec& spec, std::span<Param> params) : spec_(spec) {
  for (const gnn::LayerSpec& layer : layers_of(spec)) {
    const size_t count = gnn::params_of(layer).size();
    layers_.push_back(gnn::make_layer(layer, params.first(count)));
    params = params.subspan(count);
  }
  if (spec.circuits) {
    to_inner_ = params.data();
    params = params.subspan(1);
  }
  head_ = params;
  CHECK(head_.size() == kHeadSize, "{} parameters of the head", head_.size());
}

Tensor QorNetwork::linear(gnn::Run& run, const SeqMap& rows, const Tensor& x, Param& w, Param* b) const {
  gnn::Run own{.ctx = run.ctx, .seqs = rows, .state = run.state, .numerics = run.numerics};
  return nn::linear(own, x, w, DType::f32, b);
}

Tensor QorNetwork::circuits(gnn::Run& run, const Circuits& c) const {
  if (layers_.empty()) return {};
  Tensor x(run.ctx.arena, DType::f32, {c.edges.cols(), kFeatures});
  std::copy(c.x.begin(), c.x.end(), x.mut().as<float>());
  for (const auto& layer : layers_) x = nn::act(run, layer->forward(run, c.edges, x, DType::f32), {}, Act::relu);
  const Tensor mean = gnn::aggregate(run, c.members, x, {.reduce = Reduce::mean}, DType::f32),
               most = gnn::aggregate(run, c.members, x, {.reduce = Reduce::max}, DType::f32);
  return linear(run, c.members.receivers, nn::concatenate(run, mean, most), *to_inner_, nullptr);
}

Tensor QorNetwork::recipes(gnn::Run& run, const Picks& picks) const {
  const Tensor ids(run.ctx.arena, DType::i32, {spec_.table_rows()});
  std::iota(ids.mut().as<int32_t>(), ids.mut().as<int32_t>() + spec_.table_rows(), 0);
  const Tensor rows = nn::embedding(run, ids, head_[kTable]);
  const Tensor steps = nn::act(run, gnn::aggregate(run, picks.windows, rows, {}, DType::f32), {}, Act::relu);
  return gnn::aggregate(run, picks.steps, steps, {.reduce = Reduce::mean}, DType::f32);
}

Tensor QorNetwork::forward(gnn::Run& run, const Picks& picks, const Tensor& rows) const {
  const SeqMap& samples = picks.circuits.receivers;
  gnn::Run own{.ctx = run.ctx, .seqs = samples, .state = run.state, .numerics = run.numerics, .draws = run.draws};
  Tensor u = linear(run, samples, recipes(run, picks), head_[kRecipeWeight], &head_[kRecipeBias]);
  if (spec_.circuits) u = nn::add(run, u, gnn::aggregate(run, picks.circuits, rows, {}, DType::f32));
  u = nn::dropout(own, nn::act(run, u, {}, Act::relu), spec_.dropout, 0, kUse);
  u = nn::act(run, linear(run, samples, u, head_[kHiddenWeight], &head_[kHiddenBias]), {}, Act::relu);
  u = nn::dropout(own, u, spec_.dropout, 1, kUse);
  return linear(run, samples, u, head_[kOutWeight], &head_[kOutBias]);
}

}  // namespace braid::eda
