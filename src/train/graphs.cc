#include "train/graphs.h"

#include <algorithm>
#include <utility>

#include "graph/batch.h"
#include "io/safetensors_write.h"
#include "report/units.h"

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

void Graphs::take(std::span<const int32_t> graphs, bool held_out) {
  batch_ = &batches_[held_out ? 1 : 0];
  if (std::equal(graphs.begin(), graphs.end(), batch_->graphs.begin(), batch_->graphs.end())) return;
  *batch_ = {};
  batch_->graphs.assign(graphs.begin(), graphs.end());
  for (const int32_t g : batch_->graphs) batch_->classes.push_back(data_.y[static_cast<size_t>(g)]);
  graph::GraphBatch batch = graph::batch_of(data_, data_.graph.in, batch_->graphs);
  // Where every batch is new, timing the ways to multiply by it does not pay.
  const bool same = held_out || graphs.size() == train_.size();
  const sparse::Use use = same ? sparse::Use::often : sparse::Use::once;
  batch_->edges = gnn::block_for(spec_.kind, spec_.rewrites, graph::make_graph(std::move(batch.edges)), use);
  batch_->members = gnn::make_sampled_block(graph::make_graph(std::move(batch.members)), use);
  batch_->nodes = std::move(batch.nodes);
}

int64_t Graphs::draw(int64_t step, bool held_out) {
  if (held_out) {
    take(held_out_, true);
    return 1;
  }
  draws_.step = static_cast<uint64_t>(step);
  const bool all = recipe_.batch == 0 || recipe_.batch >= std::ssize(train_);
  take(all ? train_ : epochs_.batch(recipe_.batch, step), false);
  return 1;
}

Tensor Graphs::forward(Ctx& ctx, bool draws) {
  nn::StateView none;
  nn::Run run{.ctx = ctx, .seqs = batch_->edges.senders, .state = none, .numerics = numerics_of(recipe_)};
  if (draws) run.draws = &draws_;
  const gnn::Block* blocks[] = {&batch_->edges};
  return network_.forward(run, blocks,
                          features_of(ctx, weights_.masters().products(), data_.x, data_.features, batch_->nodes),
                          &batch_->members);
}

void Graphs::run(Ctx& ctx, int64_t, int64_t, bool backward, Sums& sums) {
  ctx.tape = backward ? &tape_ : nullptr;
  class_loss(ctx, ctx.tape, forward(ctx, backward), batch_->classes, tokens(), sums);
  if (backward) tape_.backward(ctx);
  tape_.clear();
  ctx.tape = nullptr;
}

std::vector<float> Graphs::logits(Ctx& ctx, std::span<const int32_t> graphs) {
  take(graphs, true);
  const Tensor y = forward(ctx, false);
  const auto* values = y.view().as<float>();
  return {values, values + y.view().count()};
}

void Graphs::write(std::span<const float> values, const std::filesystem::path& folder) {
  weights_.write(values, data_.features, data_.classes, folder);
}

void Graphs::write_batch(const std::filesystem::path& path) const {
  const int64_t n = std::ssize(batch_->graphs);
  io::SafetensorsWriter file(path, {{"graphs", DType::i32, {n}}, {"targets", DType::i32, {n}}});
  for (const io::TensorSpec& spec : file.order())
    file.write(spec.name, view_of((spec.name == "graphs" ? batch_->graphs : batch_->classes).data(), {n}));
  file.finish();
}

Facts Graphs::facts() const {
  return {{kEdges, fmt::format("\"{:016x}\"", graph::fingerprint(data_.graph.in))},
          content_of(data_, data_.graph.in),
          {"features", std::to_string(data_.features)},
          {"classes", std::to_string(data_.classes)}};
}

std::vector<std::string> Graphs::describe() const {
  std::vector<std::string> lines = {
      fmt::format("{} graphs, together {}", data_.y.size(), graph::describe(graph::stats_of(data_.graph.in))),
      fmt::format("{} with {}, {} parameters; {} classes, {} graphs to train on, {} held out", recipe_.graph.model,
                  report::counted(spec_.layers, "layer"), weights_.masters().trained(), data_.classes, train_.size(),
                  held_out_.size())};
  lines.insert(lines.end(), data_.notes.begin(), data_.notes.end());
  return lines;
}

}  // namespace braid::train
