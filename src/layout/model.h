// A model as a plan of many ranks sees it: kinds of layers, equal ones counted once, and of each what a rank has of it
// under a cut. The rules of what divides are those of training (models/cut.h, train/token_shares.h): a layout is legal
// if they take it.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "models/config.h"
#include "train/recipe.h"
#include "train/stage_passes.h"

namespace braid::layout {

inline double real(int64_t n) { return static_cast<double>(n); }

// Equal matrices of a layer, as a rank has them.
struct Matrices {
  ParamRole role = ParamRole::none;
  double rows = 0, cols = 0, count = 1;
  bool expert = false;
};

// Numbers that so many consecutive ranks of the tensor axis have alike, of whose gradients each computes a part.
struct SharedNumbers {
  double count = 0;
  int64_t ranks = 0;
};

// A layer as a rank has it; also the prediction block, and what belongs to no layer.
struct LayerPart {
  std::vector<models::PartSpec> parts{};
  std::vector<Matrices> products{};
  std::vector<SharedNumbers> shared{};
  int64_t norm_ranks = 1;         // that have parts of a group of a gated norm each
  double dense = 0, experts = 0;  // parameters
};

// What a rank has under one cut.
struct RankModel {
  models::Config config{};         // a layer of every kind
  std::vector<LayerPart> kinds{};  // of layers
  std::vector<LayerPart> mtp{};    // layers of the prediction block
  LayerPart table{}, head{};       // embedding and positions; final norm and head, which may be the table again
};

// Rows that a rank's experts read: tokens, or what came from other ranks, of `top_k` experts each.
struct ExpertRows {
  int64_t rows = 0, top_k = 1, sequences = 1;
  DType type = DType::bf16;
  bool here = false;  // Device::here
};

class Model {
 public:
  // `recipe`: what the trainer's rules read besides a layout. `length`: tokens of a sequence.
  Model(models::Config config, train::Recipe recipe, int64_t length);

  const models::Config& config() const { return config_; }
  const train::Recipe& recipe() const { return recipe_; }
  int64_t length() const { return length_; }
  int64_t layers() const { return static_cast<int64_t>(kinds_.size()); }
  const std::vector<size_t>& kinds() const { return kinds_; }  // of every layer
  bool has_experts() const { return experts_; }
  double flops_per_token() const { return flops_per_token_; }  // forward and backward (train/origin.h)

  // Null where the trainer refuses to divide the model so; `why` is then its message, if asked for.
  const RankModel* rank(const train::ParallelRecipe& parallel, std::string* why = nullptr) const;
  // Layers of every run of a pipeline, in order. Nothing if there are more runs than layers.
  const std::vector<Range>& runs(int64_t count) const;
  // Bytes that the backward pass of a rank's experts asks for besides its operands (kernels/experts): of the row that
  // would run here with a thread, or of one that pads no rows.
  double experts_workspace(const nn::MoeSpec& spec, const ExpertRows& rows) const;

 private:
  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, bool>;
  struct Entry {
    std::unique_ptr<RankModel> model{};
    std::string why{};
  };
  models::Config config_, digest_;  // digest_: a layer of every kind
  train::Recipe recipe_;
  int64_t length_;
  std::vector<size_t> kinds_;
  bool experts_ = false;
  double flops_per_token_ = 0;
  train::LayerCosts costs_;
  mutable std::map<Key, Entry> cuts_;
  mutable std::map<int64_t, std::vector<Range>> runs_;
  mutable std::map<std::array<int64_t, 9>, double> workspaces_;
};

}  // namespace braid::layout
