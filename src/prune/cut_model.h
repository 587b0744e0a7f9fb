// A model with some of its units left out: which stay, by scores and sizes, and a source of its parameters that are cut
// from those of the whole model when they are asked for.
//
// An RMSNorm over fewer channels divides by another mean. Its weights are scaled by the root of the mean energy of the
// channels that stay (Scores::energy): by sqrt(D' / D) where those left out are zero, and by 1 where they are like the
// others. Layers that read it get what they got before, on average.
#pragma once
#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/weight_store.h"
#include "models/model.h"
#include "prune/layout.h"
#include "prune/scores.h"

namespace braid::prune {

// What stays of a layer, in the order that it then has, by Label. Channels of experts are chosen for each expert.
struct LayerKeep {
  std::array<std::vector<int64_t>, kLabels> units{};
  std::vector<std::vector<int64_t>> expert_ffn{};  // [E of the whole]
  std::vector<int64_t>& operator[](Label l) { return units[static_cast<size_t>(l)]; }
  const std::vector<int64_t>& operator[](Label l) const { return units[static_cast<size_t>(l)]; }
};

struct Keep {
  std::vector<int64_t> hidden{}, layers{};
  std::map<int, LayerKeep> of_layer{};                     // by layer of the whole model
  std::map<std::string, std::vector<float>> norm_scale{};  // of the weights that stay, by name
  // Routers that lose experts start to balance the others anew: the bias that selects had balanced all of them.
  bool reset_router_bias = false;
};

std::vector<int64_t> in_place(int64_t n);  // 0, 1, ...: all units as they are

Keep choose(const models::Config& config, const Layouts& layouts, const Sizes& sizes, const Scores& scores);

// Its parts, for layers of any sizes: adds to `keep` what stays of one block of layer `layer` when `was` becomes `is`,
// and the scales of the norms that read fewer channels, of the layers that `keep` has.
void keep_units(const models::BlockSpec& was, const models::BlockSpec& is, const Scores& scores, int layer,
                LayerKeep& keep);
void scale_norms(const models::Config& config, const Layouts& layouts, const Scores& scores, Keep& keep);

// Groups of Mamba's gated norm; 1 for the norms of the residual stream.
int64_t norm_groups(const models::Config& config, const Layout& layout);

// Values of a parameter of the smaller model that are not cut from the whole one's: trained, merged or new ones, [rows,
// cols] as products read them. `like`: for a name that the whole model lacks, the parameter whose type and spelling in
// files it takes.
struct Replacement {
  View value{};
  std::string like{};
};
using Replacements = std::map<std::string, Replacement>;  // by name in the config

// Rows and columns of a parameter as products read it, [rows, cols]; of a stack of experts the rows of all.
struct Places {
  std::vector<int64_t> rows{}, cols{};
  int64_t count() const { return std::ssize(rows) * std::ssize(cols); }
};

class CutSource final : public nn::ParamSource {
 public:
  // All outlive this; the values are made in `store`.
  CutSource(nn::ParamSource& whole, const Layouts& layouts, const Keep& keep, WeightStore& store)
      : whole_(whole), layouts_(layouts), keep_(keep), store_(&store) {}

  bool has(const std::string& name) const override { return whole_.has(name); }
  // Takes these values where it has them; they outlive this.
  void replace(const Replacements& values) { replaced_ = &values; }
  // Makes what is asked for from here on in another store.
  void make_in(WeightStore& store) { store_ = &store; }
  // What the whole model has in place of a parameter of the smaller one.
  const Layout& origin(const nn::ParamRequest& request) const;
  // Which of its values those of the smaller one are, one after the other: of a stack a part for each expert.
  std::vector<Places> places_of(const nn::ParamRequest& request) const;
  // Its name in the files of the whole model.
  std::string stored_name(const nn::ParamRequest& request) { return whole_.get(origin(request).spec).name; }
  Param cut(const nn::ParamRequest& request);

 protected:
  Param first(const nn::ParamRequest& request) override { return cut(request); }

 private:
  nn::ParamSource& whole_;
  const Layouts& layouts_;
  const Keep& keep_;
  const Replacement* replacement(const std::string& name) const;

  WeightStore* store_;
  const Replacements* replaced_ = nullptr;
};

// The whole model, its parameters under the names of the config: files may spell them otherwise. `files` and what they
// keep outlive it.
std::unique_ptr<models::Model> whole_model(const models::Config& config, nn::ParamSource& files);

// The smaller model in memory. `whole` is only read by this call.
std::unique_ptr<models::Model> cut_model(const models::Config& config, const Layouts& layouts, const Keep& keep,
                                         const Sizes& sizes, nn::ParamSource& whole);

}  // namespace braid::prune
