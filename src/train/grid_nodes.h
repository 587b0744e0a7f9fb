// Classes of the nodes of a graph that ranks divide among themselves (gnn/grid.h): Nodes on parallel.grid = "x,y,z".
// Each rank reads the graph, those of a node in turns, and keeps its blocks and its part of features, activations,
// weights and moments. Losses are those of one rank but for the rounding of sums; weights do not depend on the grid, so
// that any number of ranks resumes a checkpoint.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/tape.h"
#include "gnn/grid.h"
#include "train/nodes.h"

namespace braid::train {

// Edges of the fullest block over the mean of all, by the first three layers: nodes in the order of the file, and in
// the random order that ranks take.
struct GridBalance {
  gnn::GridShape shape{};
  std::vector<double> in_order{}, permuted{};

  std::vector<std::string> describe() const;  // a line each
};
// Of a recipe with a grid. Error when that cannot divide the graph or the network.
GridBalance balance_of(const Recipe& recipe, const Nodes& whole);

class GridNodes final : public Objective {
 public:
  // Both outlive this.
  GridNodes(const Recipe& recipe, comm::Group& world);

  models::MasterWeights& masters() override { return masters_; }
  std::vector<Param*> params() override;
  const models::MasterWeights& whole() override { return whole_->masters(); }
  int64_t draw(int64_t step, bool held_out) override;
  bool holds_out() const override { return held_out_ > 0; }
  int64_t held_out_batches() const override { return 1; }
  int64_t tokens() const override { return in_loss_; }  // of all ranks
  void run(Ctx& ctx, int64_t begin, int64_t end, bool backward, Sums& sums) override;
  void finish(bool, Sums&) override {}
  void write(std::span<const float> values, const std::filesystem::path& folder) override {
    whole_->write(values, folder);
  }
  // Weights of a graph network are few, and every rank has drawn them.
  void lay_out(const std::filesystem::path& folder) override { whole_->write(whole_->masters().values(), folder); }
  std::filesystem::path weights_in(const std::filesystem::path& folder) const override {
    return whole_->weights_in(folder);
  }
  // Of the nodes that have logits on this rank.
  void write_batch(const std::filesystem::path& file) const override;
  Facts facts() const override { return facts_; }

  // A line each: those of Nodes, the grid, and how even its blocks are.
  std::vector<std::string> describe() const override { return lines_; }

 private:
  void read();
  void own_parts();
  void take_graph();

  const Recipe& recipe_;
  gnn::GridRanks ranks_;
  std::optional<Nodes> whole_;  // its weights, once the graph was read
  Facts facts_;
  std::vector<std::string> lines_;
  models::MasterWeights masters_;
  std::vector<Param> params_;
  std::optional<gnn::GridNetwork> network_;
  std::vector<float> x_;        // features of this rank's nodes and channels
  std::vector<int32_t> nodes_;  // those of this rank's logits; their classes, and which of them are trained on
  std::vector<int32_t> y_;
  std::vector<uint8_t> train_;
  std::vector<int32_t> targets_;  // their classes in the batch, -1: not in the loss
  int64_t trained_ = 0, held_out_ = 0, in_loss_ = 0;
  nn::Draws draws_;
  Tape tape_;
};

}  // namespace braid::train
