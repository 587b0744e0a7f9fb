// The model that variants are made from: its blocks one by one, and variants of them as models of one block, which take
// the residual stream before the block to the stream after it.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/batch.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "models/load.h"
#include "prune/cut_model.h"
#include "prune/measure.h"
#include "puzzle/variants.h"

namespace braid::puzzle {

// Values of a variant that are not cut from the parent's, and their owner.
struct Values {
  std::shared_ptr<WeightStore> store{};  // shared: by a variant and by the model that is chosen
  prune::Replacements of{};
};

class Parent {
 public:
  // Error for quantised weights and recurrent depth.
  explicit Parent(const io::ModelPath& path);

  const models::Config& config() const { return config_; }
  // Each block a layer of its own, without the prediction block: layer i is site i.
  const models::Config& split() const { return split_; }
  models::Model& model() { return *model_; }

  // Importance, by which variants are cut (prune/measure.h). Before any variant is made.
  void measure(std::span<const data::Batch> rows, int threads, const prune::Progress& progress);

  // Merged key heads and linear maps (all zero); empty for variants that are cut.
  Values first_values(const Site& site, const Variant& variant);
  // The block of a site alone, layer `index` of a split config.
  std::unique_ptr<models::Model> block(const Site& site, size_t index, const Variant& variant, const Values& values);
  // Its config, and what of the parent's parameters stays in it, for another source of them.
  models::Config block_config(size_t index, const Variant& variant) const;
  prune::Keep keep_of(const Site& site, const Variant& variant) const;
  nn::ParamSource& files() { return *folder_.source; }
  const prune::Layouts& layouts() const { return *layouts_; }
  // Of a parameter in the files: what its values are rounded to.
  DType stored_type(const std::string& stored) const { return weights_.need(stored).dtype; }

  // The model of one variant a site, under the names of the parent.
  models::Config assembled(std::span<const Site> sites, std::span<const int64_t> choice) const;
  // Bytes of all tensors of such a model in files; `params`: their values.
  int64_t bytes_of(const models::Config& small, std::span<const Site> sites, int64_t* params);
  // As a folder. `values` are of all replaced parameters. Returns false when `progress` stopped it.
  bool write(std::span<const Site> sites, std::span<const int64_t> choice, const prune::Replacements& values,
             const std::filesystem::path& out, const sys::FunctionRef<bool(int64_t, int64_t)>& progress);

 private:
  void add_layer(prune::Keep& keep, size_t layer, std::span<const Variant* const> parts) const;
  prune::Keep whole_keep() const;
  bool stacked() const;

  io::ModelPath path_;
  io::Json json_;
  models::Config config_, split_;
  models::OpenFolder folder_;
  io::Safetensors weights_;
  std::optional<prune::Layouts> layouts_;
  std::unique_ptr<models::Model> model_;
  prune::Scores scores_;
};

// Layers of `model` over the stream x of `seqs`; no layer: the embedding of `ids`, if x is empty.
Tensor run_layers(Ctx& ctx, models::Model& model, const SeqMap& seqs, const Tensor& ids, const Tensor& x,
                  const Range& layers, const Numerics& numerics);

}  // namespace braid::puzzle
