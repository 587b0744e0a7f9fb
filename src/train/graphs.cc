#include "train/graphs.h"

#include <algorithm>
#include <utility>

#include "graph/batch.h"
#include "io/safetensors_write.h"

namespace braid::train {

Graphs::Graphs(const Recipe& recipe, int64_t classes)
    : recipe_(recipe),
      data_(read_for(recipe, classes)),
      spec_(network_of(recipe, data_.features, data_.classes)),
      weights_(recipe, gnn::params_of(spec_)),
      network_(spec_, weights_.params()),
      draws_{.seed = static_cast<uint64_t>(recipe.seed)} {
  for (size_t g = 0; g < data_.y.size(); ++g) {
    if (data_.y[g] >= 0) (data_.train[g] ? train_ : held_out_).push_back(static_cast<int32_t>(g));
  }
  epochs_ = Epochs(train_, draws_.seed);
}

void Graphs::take(std::span<const int32_t> graphs) {
  if (std::equal(graphs.begin(), graphs.end(), graphs_.begin(), graphs_.end())) return;
  graphs_.assign(graphs.begin(), graphs.end());
  classes_.clear();
  for (const int32_t g : graphs_) classes_.push_back(data_.y[static_cast<size_t>(g)]);
  graph::GraphBatch batch = graph::batch_of(data_, data_.graph.in, graphs_);
  // Where every batch is new, timing the ways to multiply by it does not pay.
  const bool same = graphs_.size() == train_.size();
  const sparse::Use use = same ? sparse::Use::often : sparse::Use::once;
  edges_ = gnn::block_for(spec_.kind, spec_.rewrites, graph::make_graph(std::move(batch.edges)), use);
  members_ = gnn::make_sampled_block(graph::make_graph(std::move(batch.members)), use);
  nodes_ = std::move(batch.nodes);
}

int64_t Graphs::draw(int64_t step, bool held_out) {
  if (held_out) {
    take(held_out_);
    return 1;
  }
  draws_.step = static_cast<uint64_t>(step);
  const bool all = recipe_.batch == 0 || recipe_.batch >= std::ssize(train_);
  take(all ? train_ : epochs_.batch(recipe_.batch, step));
  return 1;
}

Tensor Graphs::forward(Ctx& ctx, bool draws) {
  nn::StateView none;
  nn::Run run{.ctx = ctx, .seqs = edges_.senders, .state = none, .numerics = numerics_of(recipe_)};
  if (draws) run.draws = &draws_;
  const gnn::Block* blocks[] = {&edges_};
  return network_.forward(run, blocks, features_of(ctx, weights_.masters().products(), data_.x, data_.features, nodes_),
                          &members_);
}

void Graphs::run(Ctx& ctx, int64_t, int64_t, bool backward, Sums& sums) {
  ctx.tape = backward ? &tape_ : nullptr;
  class_loss(ctx, ctx.tape, forward(ctx, backward), classes_, tokens(), sums);
  if (backward) tape_.backward(ctx);
  tape_.clear();
  ctx.tape = nullptr;
}

std::vector<float> Graphs::logits(Ctx& ctx, std::span<const int32_t> graphs) {
  take(graphs);
  const Tensor y = forward(ctx, false);
  const auto* values = y.view().as<float>();
  return {values, values + y.view().count()};
}

void Graphs::write(std::span<const float> values, const std::filesystem::path& folder) {
  weights_.write(values, data_.features, data_.classes, folder);
}

void Graphs::write_batch(const std::filesystem::path& path) const {
  const int64_t n = std::ssize(graphs_);
  io::SafetensorsWriter file(path, {{"graphs", DType::i32, {n}}, {"targets", DType::i32, {n}}});
  for (const io::TensorSpec& spec : file.order())
    file.write(spec.name, view_of((spec.name == "graphs" ? graphs_ : classes_).data(), {n}));
  file.finish();
}

Facts Graphs::facts() const {
  return {{"graph", fmt::format("\"{:016x}\"", graph::fingerprint(data_.graph.in))},
          content_of(data_, data_.graph.in),
          {"features", std::to_string(data_.features)},
          {"classes", std::to_string(data_.classes)}};
}

std::vector<std::string> Graphs::describe() const {
  std::vector<std::string> lines = {
      fmt::format("{} graphs, together {}", data_.y.size(), graph::describe(graph::stats_of(data_.graph.in))),
      fmt::format("{} with {} layers, {} parameters; {} classes, {} graphs to train on, {} held out",
                  recipe_.graph.model, spec_.layers, weights_.masters().trained(), data_.classes, train_.size(),
                  held_out_.size())};
  lines.insert(lines.end(), data_.notes.begin(), data_.notes.end());
  return lines;
}

}  // namespace braid::train
