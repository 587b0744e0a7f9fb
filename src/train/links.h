// Edges of a graph as an objective (graph.task = "edge"): a network gives every node a vector, the score of a pair is
// their dot product, and the loss the mean binary cross-entropy of the scores of edges and of as many pairs that are
// none, drawn anew each step. A share of the edges, graph.held_out, is neither trained on nor taken by messages: they
// and other pairs, always the same, are the held-out batch. A step takes `batch` edges in a new order each epoch, or
// all. Nodes may be of two types (gnn/bipartite.h).
//   Kipf, Welling, arXiv 1611.07308 (dot products); hits at k as in OGB (arXiv 2005.00687)
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/tape.h"
#include "gnn/bipartite.h"
#include "gnn/network.h"
#include "graph/graph_data.h"
#include "train/graph_weights.h"
#include "train/link_split.h"
#include "train/objective.h"
#include "train/recipe.h"

namespace braid::train {

class Links final : public Objective {
 public:
  // Reads the graph, and the first weights from `graph.init` or at random. The recipe outlives this.
  explicit Links(const Recipe& recipe);

  models::MasterWeights& masters() override { return weights_->masters(); }
  std::vector<Param*> params() override { return weights_->list(); }
  int64_t draw(int64_t step, bool held_out) override;
  bool holds_out() const override { return !split_.held_out.empty(); }
  int64_t held_out_batches() const override { return 1; }
  int64_t tokens() const override { return pairs_.edges(); }
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
  const LinkSplit& split() const { return split_; }
  // The pairs of the batch, rows the targets, and which of them are edges.
  const graph::Graph& pairs() const { return pairs_; }
  std::span<const uint8_t> labels() const { return labels_; }
  // The scores of the drawn batch with the present weights, in the order of pairs().
  std::vector<float> scores(Ctx& ctx);

 private:
  Tensor score_pairs(Ctx& ctx, bool draws);
  void take(std::span<const graph::Edge> edges, std::span<const graph::Edge> others);

  const Recipe& recipe_;
  graph::GraphData data_;
  LinkSplit split_;
  gnn::Block messages_, reverse_;
  std::optional<GraphWeights> weights_;
  std::optional<gnn::Network> network_;
  std::optional<gnn::BipartiteNetwork> bipartite_;
  nn::Draws draws_;
  Epochs trained_;  // numbers of the edges trained on
  graph::Graph pairs_;
  std::vector<uint8_t> labels_;
  Tape tape_;
};

}  // namespace braid::train
