// A nested model whose sizes are not decided (prune/soft_sizes.h): the whole model, its parameters copies of the
// masters multiplied by masks. A pass costs what the whole model costs, whatever the sizes.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "core/weight_store.h"
#include "models/load.h"
#include "models/master_weights.h"
#include "prune/soft_sizes.h"

namespace braid::train {

class MaskedModel {
 public:
  // All outlive this.
  MaskedModel(const models::Config& config, const models::OpenFolder& folder, const prune::Layouts& layouts,
              models::MasterWeights& masters);

  models::Model& model() { return *model_; }
  double bytes() const;  // of copies and their gradients

  // From the masters, after each of their updates, with the masks of `sizes`.
  void take_values(const prune::SoftSizes& sizes, int threads);
  // Adds the gradients of a step to the masters', and the slopes of the masks that take_values() read to those of
  // `sizes`; sets them to zero.
  void add_gradients(prune::SoftSizes& sizes, int threads);

 private:
  class Source;
  struct Site {
    const prune::Layout* layout = nullptr;
    int64_t offset = 0;
    prune::Factors factors{};
    MutView value{};
    std::vector<MutView> grads{};  // of every use
  };

  void fill(Site& site, const std::vector<bool>& closed) const;
  prune::Factors take_gradients(Site& site) const;  // the slopes of its factors

  models::MasterWeights& masters_;
  WeightStore store_;
  std::vector<Site> sites_;
  std::unique_ptr<models::Model> model_;
};

}  // namespace braid::train
