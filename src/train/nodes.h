// Classes of the nodes of a graph as an objective. A batch is the whole graph, or with `graph.sample` some of the nodes
// to train on, in a new order each epoch, and the neighbours drawn for them; its loss is the mean cross-entropy over
// its nodes to train on. The other nodes of a known class are held out; they see all their neighbours. Ranks that
// divide the graph are GridNodes (grid_nodes.h).
#pragma once
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "core/tape.h"
#include "gnn/network.h"
#include "graph/graph_data.h"
#include "train/graph_weights.h"
#include "train/objective.h"
#include "train/recipe.h"

namespace braid::train {

class Nodes final : public Objective {
 public:
  // Reads the graph, and the first weights from `graph.init` or at random. The recipe outlives this.
  // `classes`: of a network that is only run; 0: of one to train.
  explicit Nodes(const Recipe& recipe, int64_t classes = 0);

  models::MasterWeights& masters() override { return weights_.masters(); }
  std::vector<Param*> params() override { return weights_.list(); }
  int64_t draw(int64_t step, bool held_out) override;
  bool holds_out() const override { return held_out_ > 0; }
  int64_t held_out_batches() const override { return 1; }
  int64_t tokens() const override { return targets_; }  // nodes in the loss
  double flops_per_token() const override { return 0; }
  void run(Ctx& ctx, int64_t begin, int64_t end, bool backward, Sums& sums) override;
  void finish(bool, Sums&) override {}
  void write(std::span<const float> values, const std::filesystem::path& folder) override;
  std::filesystem::path weights_in(const std::filesystem::path& folder) const override {
    return GraphWeights::file_in(folder);
  }
  void write_batch(const std::filesystem::path& file) const override;
  Facts facts() const override;

  const graph::GraphData& data() const { return data_; }  // without the graph, which moved into a block
  const graph::Csr& edges() const { return block_.graph.in; }
  const gnn::NetworkSpec& spec() const { return spec_; }
  // Ranks that have their parts of the graph need it no more: what remains are the weights.
  void release_graph();
  graph::RowStats stats() const { return graph::stats_of(block_.graph.in); }
  // A line each: the graph, the network, what the reader changed.
  std::vector<std::string> describe() const override;
  // A step over the whole graph, counted; nullopt: the graph is too large for that.
  std::optional<gnn::StepCount> step();
  // What the rewrites of its computation save (gnn/rewrites.h), a line each.
  std::vector<std::string> explain();
  // The logits of all nodes with the present weights, [nodes, classes] row by row.
  std::vector<float> logits(Ctx& ctx);

 private:
  // The blocks of a pass and the nodes whose features it reads; no nodes: all.
  struct Part {
    std::vector<const gnn::Block*> blocks{};
    std::span<const int32_t> nodes{};
  };
  Part whole_graph() const { return {.blocks = {&block_}}; }
  Tensor forward(Ctx& ctx, const Part& part, bool draws);
  void draw_sample(int64_t step);

  const Recipe& recipe_;
  graph::GraphData data_;
  gnn::NetworkSpec spec_;
  gnn::Block block_;
  GraphWeights weights_;
  gnn::Network network_;
  nn::Draws draws_;
  std::vector<int32_t> batch_;  // classes of the rows of the last block, -1: not in the loss
  Epochs trained_;              // nodes
  // Of a sampled batch.
  std::vector<gnn::Block> sampled_;
  std::vector<int32_t> sampled_nodes_;
  bool held_out_batch_ = false;
  int64_t targets_ = 0, held_out_ = 0;
  Tape tape_;
};

}  // namespace braid::train
