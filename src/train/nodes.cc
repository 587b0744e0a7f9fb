#include "train/nodes.h"

#include <algorithm>
#include <utility>

#include "graph/sample.h"
#include "io/safetensors_write.h"
#include "report/units.h"

namespace braid::train {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kCountedEdges = 1 << 22;  // a pass that only counts still makes blocks of them

}  // namespace

Nodes::Nodes(const Recipe& recipe, int64_t classes)
    : recipe_(recipe),
      data_(read_for(recipe, classes)),
      spec_(network_of(recipe, data_.features, data_.classes)),
      block_(gnn::block_for(spec_.kind, spec_.rewrites, std::move(data_.graph))),
      weights_(recipe, gnn::params_of(spec_)),
      network_(spec_, weights_.params()),
      draws_{.seed = static_cast<uint64_t>(recipe.seed)} {
  std::vector<int32_t> trained;
  for (size_t i = 0; i < data_.y.size(); ++i) {
    if (data_.train[i]) trained.push_back(static_cast<int32_t>(i));
    held_out_ += data_.y[i] >= 0 && !data_.train[i] ? 1 : 0;
  }
  trained_ = Epochs(std::move(trained), draws_.seed);
  if (!recipe.graph.tiles) return;
  // Of forward passes alone: gradients are FP32.
  data_.notes.push_back(block_.plans->in.take_tiles(block_.graph.in));
}

void Nodes::release_graph() {
  block_ = {};
  data_.x = {};
  data_.y = batch_ = {};
  trained_ = {};
  data_.train = {};
}

int64_t Nodes::draw(int64_t step, bool held_out) {
  held_out_batch_ = held_out;
  if (!held_out) draws_.step = static_cast<uint64_t>(step);
  if (!held_out && recipe_.graph.sample > 0) {
    draw_sample(step);
    return 1;
  }
  targets_ = held_out ? held_out_ : trained_.count();
  batch_ = data_.y;
  for (size_t i = 0; i < batch_.size(); ++i) {
    if ((data_.train[i] == 1) == held_out) batch_[i] = -1;
  }
  return 1;
}

// Batch `step` of the nodes to train on.
void Nodes::draw_sample(int64_t step) {
  constexpr int64_t kBatch = 512;
  const std::vector<int32_t> seeds = trained_.batch(recipe_.batch > 0 ? recipe_.batch : kBatch, step);
  batch_.clear();
  for (const int32_t node : seeds) batch_.push_back(data_.y[static_cast<size_t>(node)]);
  targets_ = std::ssize(seeds);
  graph::Sample sample = graph::sample_neighbours(block_.graph.in, seeds, spec_.layers, recipe_.graph.sample,
                                                  {.seed = draws_.seed, .step = static_cast<uint64_t>(step)});
  sampled_.clear();
  for (graph::Graph& g : sample.blocks) {
    sampled_.push_back(gnn::make_sampled_block(std::move(g)));
    gnn::add_sampled_values(sampled_.back(), block_, sample.nodes);
    if (gnn::needs_edge_blocks(spec_.kind, spec_.rewrites)) gnn::add_edge_blocks(sampled_.back());
  }
  sampled_nodes_ = std::move(sample.nodes);
}

Tensor Nodes::forward(Ctx& ctx, const Part& part, bool draws) {
  nn::StateView none;
  nn::Run run{.ctx = ctx, .seqs = part.blocks.front()->senders, .state = none, .numerics = numerics_of(recipe_)};
  if (draws) run.draws = &draws_;
  return network_.forward(run, part.blocks,
                          features_of(ctx, weights_.masters().products(), data_.x, data_.features, part.nodes));
}

void Nodes::run(Ctx& ctx, int64_t, int64_t, bool backward, Sums& sums) {
  ctx.tape = backward ? &tape_ : nullptr;
  Part part = whole_graph();
  if (!held_out_batch_ && recipe_.graph.sample > 0) {
    part.blocks.clear();
    for (const gnn::Block& block : sampled_) part.blocks.push_back(&block);
    part.nodes = sampled_nodes_;
  }
  class_loss(ctx, ctx.tape, forward(ctx, part, backward), batch_, targets_, sums);
  if (backward) tape_.backward(ctx);
  tape_.clear();
  ctx.tape = nullptr;
}

std::optional<gnn::StepCount> Nodes::step() {
  if (block_.graph.edges() > kCountedEdges) return std::nullopt;
  return gnn::count_step(spec_, block_.graph, weights_.params(), numerics_of(recipe_));
}

std::vector<std::string> Nodes::explain() {
  if (block_.graph.edges() > kCountedEdges) return {"the graph is too large to count what rewrites save"};
  return gnn::explain_rewrites(spec_, block_.graph, weights_.params(), numerics_of(recipe_));
}

std::vector<float> Nodes::logits(Ctx& ctx) {
  const Tensor y = forward(ctx, whole_graph(), false);
  const auto* values = y.view().as<float>();
  return {values, values + y.view().count()};
}

void Nodes::write(std::span<const float> values, const fs::path& folder) {
  weights_.write(values, data_.features, data_.classes, folder);
}

void Nodes::write_batch(const fs::path& path) const {
  const int64_t nodes = std::ssize(batch_);
  io::SafetensorsWriter file(path, {{"targets", DType::i32, {nodes}}});
  file.write("targets", view_of(batch_.data(), {nodes}));
  file.finish();
}

Facts Nodes::facts() const {
  return {{kEdges, fmt::format("\"{:016x}\"", graph::fingerprint(block_.graph.in))},
          content_of(data_, block_.graph.in),
          {"features", std::to_string(data_.features)},
          {"classes", std::to_string(data_.classes)}};
}

std::vector<std::string> Nodes::describe() const {
  std::vector<std::string> lines = {
      graph::describe(stats()), fmt::format("{} with {}, {} parameters; {} classes, {} nodes to train on, {} held out",
                                            recipe_.graph.model, report::counted(spec_.layers, "layer"),
                                            weights_.masters().trained(), data_.classes, trained_.count(), held_out_)};
  lines.insert(lines.end(), data_.notes.begin(), data_.notes.end());
  return lines;
}

}  // namespace braid::train
