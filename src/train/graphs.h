// Classes of graphs as an objective (graph.task = "graph"): a file has many graphs, a batch is `batch` of those to
// train on (all of them where that is unset), in a new order each epoch, as one graph whose adjacency matrix has theirs
// on its diagonal; its loss is the mean cross-entropy over its graphs. The other graphs of a known class are held out.
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

class Graphs final : public Objective {
 public:
  // Reads the graphs, and the first weights from `graph.init` or at random. The recipe outlives this.
  // `classes`: of a network that is only run; 0: of one to train.
  explicit Graphs(const Recipe& recipe, int64_t classes = 0);

  models::MasterWeights& masters() override { return weights_.masters(); }
  std::vector<Param*> params() override { return weights_.list(); }
  int64_t draw(int64_t step, bool held_out) override;
  bool holds_out() const override { return !held_out_.empty(); }
  int64_t held_out_batches() const override { return 1; }
  int64_t tokens() const override { return std::ssize(batch_->classes); }  // graphs in the loss
  void run(Ctx& ctx, int64_t begin, int64_t end, bool backward, Sums& sums) override;
  void finish(bool, Sums&) override {}
  void write(std::span<const float> values, const std::filesystem::path& folder) override;
  std::filesystem::path weights_in(const std::filesystem::path& folder) const override {
    return GraphWeights::file_in(folder);
  }
  void write_batch(const std::filesystem::path& file) const override;
  Facts facts() const override;
  std::vector<std::string> describe() const override;

  const graph::GraphData& data() const { return data_; }
  const gnn::Block& edges() const { return batch_->edges; }  // of the batch
  // The logits of these graphs with the present weights, [graphs, classes] row by row.
  std::vector<float> logits(Ctx& ctx, std::span<const int32_t> graphs);

 private:
  // Graphs, their classes, the nodes of the file, edges among them, and which nodes a graph has.
  struct Batch {
    std::vector<int32_t> graphs{}, classes{}, nodes{};
    gnn::Block edges{}, members{};
  };
  void take(std::span<const int32_t> graphs, bool held_out);
  Tensor forward(Ctx& ctx, bool draws);

  const Recipe& recipe_;
  graph::GraphData data_;
  gnn::NetworkSpec spec_;
  GraphWeights weights_;
  gnn::Network network_;
  nn::Draws draws_;
  std::vector<int32_t> train_, held_out_;  // graphs
  Epochs epochs_;                          // of train_
  // The last of training and the last held out: where all graphs are a batch, neither is made twice, nor are its
  // products measured again.
  Batch batches_[2];
  Batch* batch_ = &batches_[0];
  Tape tape_;
};

}  // namespace braid::train
