#include "train/links.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

#include "gnn/edge_ops.h"
#include "io/safetensors_write.h"
#include "report/units.h"
#include "sys/error.h"

namespace braid::train {
namespace {

constexpr int64_t kHits = 20;

gnn::BipartiteSpec bipartite_spec(const Recipe& recipe, const graph::GraphData& data) {
  const GraphRecipe& g = recipe.graph;
  if (g.model != "sage")
    fail("graph.model", {.what = "does not take two types of nodes", .got = g.model, .expected = "sage"});
  if (!g.rewrites_off.empty())
    fail("graph.rewrites_off", {.what = "does not go with two types of nodes", .hint = "leaving it out"});
  return {.layers = g.layers,
          .features_a = data.features,
          .features_b = data.features_dst,
          .hidden = g.hidden,
          .out = g.hidden,
          .dropout = static_cast<float>(g.dropout),
          .aggregate = aggregate_of(g)};
}

}  // namespace

Links::Links(const Recipe& recipe)
    : recipe_(recipe),
      data_(read_for(recipe)),
      split_(split_links(data_.graph.in, data_.bipartite(), recipe.graph.held_out, static_cast<uint64_t>(recipe.seed))),
      draws_{.seed = static_cast<uint64_t>(recipe.seed)} {
  if (split_.trained.empty())
    fail(printable(recipe.graph.path), {.what = "has no edge to train on",
                                        .got = fmt::format("{} edges", data_.graph.edges()),
                                        .hint = "a smaller graph.held_out"});
  const auto first = std::span(split_.trained).first(std::min<size_t>(split_.trained.size(), 1000));
  if (draw_negatives(data_.graph.in, first, data_.bipartite(), draws_.seed, 0).empty())
    fail(printable(recipe.graph.path),
         {.what = "joins all nodes", .expected = "pairs that are not edges, to tell edges from"});
  if (data_.bipartite()) {
    messages_ = gnn::make_sampled_block(graph::make_graph(split_.messages), sparse::Use::often);
    reverse_ = gnn::make_sampled_block(graph::make_graph(messages_.graph.out), sparse::Use::often);
    const gnn::BipartiteSpec spec = bipartite_spec(recipe, data_);
    weights_.emplace(recipe, gnn::params_of(spec));
    bipartite_.emplace(spec, weights_->params());
  } else {
    const gnn::NetworkSpec spec = network_of(recipe, data_.features, recipe.graph.hidden);
    messages_ = gnn::block_for(spec.kind, spec.rewrites, graph::make_graph(split_.messages));
    weights_.emplace(recipe, gnn::params_of(spec));
    network_.emplace(spec, weights_->params());
  }
  std::vector<int32_t> numbers(split_.trained.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  trained_ = Epochs(std::move(numbers), draws_.seed);
}

void Links::take(std::span<const graph::Edge> edges, std::span<const graph::Edge> others) {
  std::vector<std::tuple<int32_t, int32_t, uint8_t>> all;
  for (const graph::Edge& e : edges) all.emplace_back(e.target, e.source, 1);
  for (const graph::Edge& e : others) all.emplace_back(e.target, e.source, 0);
  std::sort(all.begin(), all.end());
  graph::Csr csr{.rows = data_.graph.rows(), .cols = data_.graph.cols()};
  csr.rowptr.assign(static_cast<size_t>(csr.rows) + 1, 0);
  labels_.clear();
  for (const auto& [target, source, label] : all) {
    ++csr.rowptr[static_cast<size_t>(target) + 1];
    csr.col.push_back(source);
    labels_.push_back(label);
  }
  std::partial_sum(csr.rowptr.begin(), csr.rowptr.end(), csr.rowptr.begin());
  pairs_ = graph::make_graph(std::move(csr));
}

int64_t Links::draw(int64_t step, bool held_out) {
  if (held_out) {
    // Of all steps the same, which is none of training.
    constexpr auto kStep = uint64_t{0xffffffff};
    take(split_.held_out, draw_negatives(data_.graph.in, split_.held_out, data_.bipartite(), draws_.seed, kStep));
    return 1;
  }
  draws_.step = static_cast<uint64_t>(step);
  const int64_t batch = recipe_.batch > 0 ? recipe_.batch : trained_.count();
  std::vector<graph::Edge> edges;
  for (const int32_t i : trained_.batch(batch, step)) edges.push_back(split_.trained[static_cast<size_t>(i)]);
  // Pairs that are held out may be drawn: to avoid them would tell the model which they are.
  take(edges, draw_negatives(split_.messages, edges, data_.bipartite(), draws_.seed, draws_.step & 0x7fffffff));
  return 1;
}

Tensor Links::score_pairs(Ctx& ctx, bool draws) {
  nn::StateView none;
  nn::Run run{.ctx = ctx, .seqs = messages_.senders, .state = none, .numerics = numerics_of(recipe_)};
  if (draws) run.draws = &draws_;
  const DType products = weights_->masters().products();
  const Tensor x = features_of(ctx, products, data_.x, data_.features);
  if (network_) {
    const gnn::Block* blocks[] = {&messages_};
    const Tensor z = network_->forward(run, blocks, x);
    return gnn::pair_values(run, pairs_, z, z, {});
  }
  const auto [a, b] = bipartite_->forward(run, messages_, reverse_,
                                          {.a = x, .b = features_of(ctx, products, data_.x_dst, data_.features_dst)});
  return gnn::pair_values(run, pairs_, b, a, {});
}

void Links::run(Ctx& ctx, int64_t, int64_t, bool backward, Sums& sums) {
  ctx.tape = backward ? &tape_ : nullptr;
  {
    const Tensor scores = score_pairs(ctx, backward),
                 dscores = backward ? Tensor(ctx.arena, DType::f32, scores.shape()) : Tensor();
    const auto* values = scores.view().as<float>();
    const auto count = static_cast<double>(labels_.size());
    double loss = 0;
    std::vector<float> sides[2];
    for (size_t i = 0; i < labels_.size(); ++i) {
      const auto s = static_cast<double>(values[i]), wrong = labels_[i] ? -s : s;
      loss += std::max(wrong, 0.0) + std::log1p(std::exp(-std::fabs(wrong)));  // log(1 + e^wrong)
      sides[labels_[i]].push_back(values[i]);
      if (backward) dscores.mut().as<float>()[i] = static_cast<float>((1 / (1 + std::exp(-s)) - labels_[i]) / count);
    }
    sums.add("loss", loss, count);
    if (std::isfinite(loss)) {                                                    // scores that are NaN have no order
      if (const auto auc = auc_of(sides[1], sides[0])) sums.add("auc", *auc, 1);  // a dense graph may leave no pairs
      sums.add("hits_at_20", hits_at(kHits, sides[1], sides[0]), 1);
    }
    if (backward) tape_.add_grad(ctx, scores, dscores);
  }
  if (backward) tape_.backward(ctx);
  tape_.clear();
  ctx.tape = nullptr;
}

std::vector<float> Links::scores(Ctx& ctx) {
  const Tensor y = score_pairs(ctx, false);
  const auto* values = y.view().as<float>();
  return {values, values + y.view().count()};
}

void Links::write(std::span<const float> values, const std::filesystem::path& folder) {
  weights_->write(values, data_.features, recipe_.graph.hidden, folder);
}

void Links::write_batch(const std::filesystem::path& path) const {
  std::vector<int32_t> targets, sources, labels(labels_.begin(), labels_.end());
  for (int64_t i = 0; i < pairs_.rows(); ++i)
    targets.insert(targets.end(), static_cast<size_t>(pairs_.in.degree(i)), static_cast<int32_t>(i));
  sources = pairs_.in.col;
  const int64_t n = pairs_.edges();
  io::SafetensorsWriter file(path,
                             {{"label", DType::i32, {n}}, {"source", DType::i32, {n}}, {"target", DType::i32, {n}}});
  for (const io::TensorSpec& spec : file.order()) {
    const auto& list = spec.name == "label" ? labels : spec.name == "source" ? sources : targets;
    file.write(spec.name, view_of(list.data(), {n}));
  }
  file.finish();
}

Facts Links::facts() const {
  return {{kEdges, fmt::format("\"{:016x}\"", graph::fingerprint(data_.graph.in))},
          content_of(data_, data_.graph.in),
          {"features", std::to_string(data_.features)}};
}

std::vector<std::string> Links::describe() const {
  const std::string types =
      data_.bipartite() ? fmt::format(", from {} nodes of another type", data_.graph.cols()) : std::string();
  std::vector<std::string> lines = {
      graph::describe(graph::stats_of(data_.graph.in)) + types,
      fmt::format("{} with {}, {} parameters; {} pairs to train on, {} held out, whose edges no message takes",
                  recipe_.graph.model, report::counted(recipe_.graph.layers, "layer"), weights_->masters().trained(),
                  split_.trained.size(), split_.held_out.size())};
  lines.insert(lines.end(), data_.notes.begin(), data_.notes.end());
  return lines;
}

}  // namespace braid::train
