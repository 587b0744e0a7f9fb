// What objectives over graphs share, whatever their task: the checks of a recipe, the network that it describes, its
// weights in training, batches by epochs, and the loss of classes.
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/tape.h"
#include "gnn/network.h"
#include "graph/graph_data.h"
#include "models/master_weights.h"
#include "train/manifest.h"
#include "train/objective.h"
#include "train/recipe.h"

namespace braid::train {

// Error for words that do not go with objective = "graph".
void check_graph(const Recipe& recipe);
// The graph of a recipe that was checked, for its task. Weights of edges that its model does not read are dropped, with
// a note. `classes`: of a network that is only run (graph_data.h).
graph::GraphData read_for(const Recipe& recipe, int64_t classes = 0);
// How messages are reduced: graph.aggregate, or what the model does by itself.
Reduce aggregate_of(const GraphRecipe& recipe);
gnn::NetworkSpec network_of(const Recipe& recipe, int64_t features, int64_t classes);

// The tensors of a network, as files have them.
std::vector<models::MasterTensor> tensors_of(const std::vector<gnn::LayerParam>& params);

// Their Params in `masters`, with roles and shards, in order.
std::vector<Param> own_params(models::MasterWeights& masters, const std::vector<gnn::LayerParam>& params);

// Draws them, from the numbers of their places.
void initialise(models::MasterWeights& masters, const std::vector<gnn::LayerParam>& params, int64_t seed);

class GraphWeights {
 public:
  // From graph.init, or at random. The recipe outlives this.
  GraphWeights(const Recipe& recipe, const std::vector<gnn::LayerParam>& params);
  models::MasterWeights& masters() { return masters_; }
  const models::MasterWeights& masters() const { return masters_; }
  std::span<Param> params() { return params_; }
  std::vector<Param*> list();
  // model.safetensors, and config.json with the words of the network.
  void write(std::span<const float> values, int64_t features, int64_t classes, const std::filesystem::path& folder);
  static std::filesystem::path file_in(const std::filesystem::path& folder);

 private:
  void load(const std::filesystem::path& path);
  // "0.eps" and so on: PyTorch Geometric's GINConv keeps it as a buffer, without which it loads no file.
  std::vector<std::string> eps_names() const;

  const Recipe& recipe_;
  models::MasterWeights masters_;
  std::vector<Param> params_;
};

// Items in batches: each epoch has its own order, by random numbers of its own, which is sorted once and kept.
class Epochs {
 public:
  Epochs() = default;
  Epochs(std::vector<int32_t> items, uint64_t seed) : items_(std::move(items)), seed_(seed) {}
  int64_t count() const { return std::ssize(items_); }
  // Batch `step` of `batch` items, of any epoch; the last of an epoch may have fewer.
  std::vector<int32_t> batch(int64_t batch, int64_t step);

 private:
  std::vector<int32_t> items_{};  // in the order of epoch_
  uint64_t seed_ = 0;
  int64_t epoch_ = -1;
};

// The fact of what is on the graph: features, classes, which are trained on, where graphs begin, and weights of edges.
std::pair<std::string, std::string> content_of(const graph::GraphData& data, const graph::Csr& edges);

// Features [rows, width] of `nodes` as products read them; no nodes: of all.
Tensor features_of(Ctx& ctx, DType products, const std::vector<float>& x, int64_t width,
                   std::span<const int32_t> nodes = {});

// The mean cross-entropy of rows with a class over `count` of them, and their accuracy, into the sums; `tape`, if
// not null, gets the gradient.
void class_loss(Ctx& ctx, Tape* tape, const Tensor& logits, std::span<const int32_t> classes, int64_t count,
                Sums& sums);

}  // namespace braid::train
