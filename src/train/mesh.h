// The mesh of a run's ranks. Groups of `tp` consecutive ranks shard one model's blocks (nn/tensor_parallel.h) and read
// the same tokens; `cp` consecutive groups divide the tokens of the same rows (nn/context_parallel.h). Ranks at the
// same position in different replicas divide the batch and sum their gradients. The stages of a pipeline (pipeline.h)
// are consecutive runs of equally many ranks: rank = ((stage * shares + share) * cp + piece) * tp + part. Experts may
// be divided over the ranks of a stage in another way (nn/expert_parallel.h): `ep` times `etp` consecutive ranks hold
// all experts, and ranks at the same position in other such runs sum their gradients. A Mesh knows which rows of a
// batch and which elements of the optimiser's state belong to this rank, and what ranks exchange once a step. All of
// them call the same functions in the same order. Every rank computes the same sums in the same order, so that all take
// the same decisions.
//
// In a grid (grid.h) x is tp, and y ranks divide the residual stream. Of the ranks that share a batch, z consecutive
// ones divide the optimiser's state as with zero = 1; the d ranks with the same part of it sum its gradients.
//
// zero (arXiv 1910.02054, section 5): 0, every rank has the whole state of the optimiser; 1, each keeps and updates one
// part of it: gradients are reduced to the rank that updates them, weights are gathered from there. 2 and 3 keep no
// more of the gradients, and of the weights, between the passes of a layer (layer_shards.h).
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "comm/group.h"
#include "core/param.h"
#include "models/master_weights.h"
#include "nn/expert_routes.h"
#include "sys/function_ref.h"
#include "train/divided_matrices.h"
#include "train/families.h"
#include "train/layer_shards.h"
#include "train/objective.h"
#include "train/overlap.h"
#include "train/recipe.h"

namespace braid::train {

// Error when a run of this recipe cannot be divided among `ranks` ranks.
void check_mesh(const Recipe& recipe, int ranks);
// Error when ranks cannot divide the recipe's model, whose folder is read.
void check_cut(const Recipe& recipe);

// Some elements of the masters' arrays, of one tensor.
struct TensorElements {
  const models::MasterTensor* tensor = nullptr;
  Range elements{};

  Range within() const { return {elements.begin - tensor->offset, elements.count}; }
};

class Mesh {
 public:
  // `world`, which outlives this, is all ranks.
  Mesh(const Recipe& recipe, comm::Group& world);

  bool first() const { return world_.rank() == 0; }  // who writes files and talks to people
  int ranks() const { return world_.size(); }
  int shares() const { return data_.size() / context_.size(); }  // of the rows of a batch
  int64_t stage() const { return pipe_.rank(); }
  comm::Group* pipe() { return pipe_.size() > 1 ? &pipe_ : nullptr; }
  Cut cut() const {
    return {.rank = tensor_.rank(),
            .ranks = tensor_.size(),
            .sequence = recipe_.sp,
            .hidden_rank = hidden_.rank(),
            .hidden_ranks = hidden_.size()};
  }
  ExpertCut expert_cut() const;
  comm::Group* tensor() { return tensor_.size() > 1 ? &tensor_ : nullptr; }
  std::map<int64_t, comm::Group>* sharers() { return tensor_.size() > 1 ? &sharers_ : nullptr; }  // nn::Run
  comm::Group* hidden() { return hidden_.size() > 1 ? &hidden_ : nullptr; }
  bool overlaps_passes() const { return recipe_.overlap && axes_.model() > 1; }  // nn::Run::overlap
  comm::Group* data() { return data_.size() > 1 ? &data_ : nullptr; }  // that have other tokens, with the same parts
  comm::Group* context() { return context_.size() > 1 ? &context_ : nullptr; }
  int64_t expert_nodes() const { return aligned_.size(); }  // that have the experts of a layer between them
  const nn::ExpertRanks* experts() const { return recipe_.divides_experts() ? &expert_ranks_ : nullptr; }
  // Whether a rank holds a part of the model only.
  bool divides_model() const { return recipe_.divides_model(); }
  // Of `rows` rows of a batch: this rank's.
  Range rows(int64_t rows) const;
  // Elements of the masters' arrays that this rank's optimiser updates.
  std::vector<Range> own(const models::MasterWeights& masters);
  bool divides_state() const { return recipe_.zero > 0 || axes_.z > 1; }
  bool divides_weights() const { return recipe_.zero > 2; }
  models::Parted parted() const { return {.values = recipe_.zero > 2, .grads = recipe_.zero > 1}; }
  // Once the weights are there. With zero above 1 this rank keeps its parts.
  void divide(models::MasterWeights& masters, int threads);
  // Elements of a tensor that other ranks update.
  std::vector<Range> others(const models::MasterWeights& masters, const models::MasterTensor& tensor);
  // Of which the optimiser needs whole ones, and this rank has parts; null: none.
  DividedMatrices* matrices() { return matrices_ ? &*matrices_ : nullptr; }
  nn::LayerPasses* layers() {
    if (overlap_) return &*overlap_;
    return shards_ ? &*shards_ : nullptr;
  }
  // Around the passes of a step, or of an evaluation.
  void begin_passes();
  void end_passes();

  // Before and after the passes of a step: afterwards `sums` are those of all ranks, and so are the gradients that this
  // rank's optimiser reads.
  void begin_gradients(models::MasterWeights& masters, Sums& sums);
  void end_gradients(models::MasterWeights& masters, Sums& sums, int threads);
  // Over the ranks that share a batch, and the stages.
  void add_up(Sums& sums);
  void add_up(std::span<double> values);
  void add_up(std::span<int32_t> values);
  // Over all ranks.
  double add_up_all(double value);
  // The sum over all parameters, each counted once, from `squares` of a range of this rank's elements.
  double squared_norm(const models::MasterWeights& masters, sys::FunctionRef<double(const Range&)> squares);
  // After the optimiser: the weights that other ranks updated. With parallel.overlap they come with the next passes, or
  // with settle(), until which the masters have old ones.
  void gather_weights(models::MasterWeights& masters, int threads);
  void settle() {
    if (overlap_) overlap_->gather_rest();
  }
  // Whole arrays of what the ranks have, in the order of `whole`, on the first rank; nothing elsewhere. `part`: the
  // array has the elements own() alone.
  std::vector<float> assemble(const models::MasterWeights& masters, const models::MasterWeights& whole,
                              std::span<const float> array, bool part);

  // What this rank writes of a model that ranks hold in parts: all of them together write every element of `whole` (on
  // the first rank) once. The same at every call; the first one is made by all ranks.
  std::span<const TensorElements> written(const models::MasterWeights& masters, const models::MasterWeights& whole);

  comm::Group& world() { return world_; }
  void barrier() { world_.barrier().wait(); }
  // This rank's share of what is free on its machine. All ranks ask before any of them takes some.
  int64_t available_memory();
  // Seconds in which this rank waited for sums of gradients so far, and bytes that it has sent.
  double waited() const { return waits_.seconds(); }
  int64_t bytes_sent() const { return world_.traffic().bytes[0] + world_.traffic().bytes[1]; }
  // Of these, by what is divided: the axes as `braid plan layout` names them, and "rest", sums of losses and what ranks
  // agree on.
  std::map<std::string, int64_t> bytes_by_axis() const;

 private:
  void sum_gradients(models::MasterWeights& masters);
  bool is_summed(int layer) const { return shards_ && layer >= 0; }  // by its passes
  void send(const Sums& sums, int peer);
  void receive(Sums& sums, int peer);
  std::span<const Family> families(const models::MasterWeights& masters);
  // All ranks of a model make the first call.
  std::span<const PartialSum> partial_sums(const models::MasterWeights& masters);
  // Those of the families of which this rank is the first.
  std::vector<models::MasterTensor> held(const models::MasterWeights& masters);
  std::vector<float> joined(const models::MasterWeights& masters, std::span<const float> own);

  ParallelRecipe recipe_;
  int64_t parts_;  // of a batch
  Grid axes_;
  bool whole_tensors_;  // the optimiser reads matrices whole
  comm::Group& world_;
  // The ranks that share a model's blocks, those that share tokens, those that sum gradients, and those that sum
  // losses: one place in tensor_.
  comm::Group tensor_, context_, data_, batch_;
  comm::Group hidden_;          // that divide the channels between blocks
  comm::Group state_, copies_;  // of data_: those that divide a state, and those that have the same part of it
  comm::Group pipe_, ends_;     // the stages of a model; of these the first and the last, for each other rank itself
  // Of experts: the ranks that have all of them, those that have the same ones, and of the former by their nodes.
  comm::Group experts_, replicas_, node_, aligned_;
  nn::ExpertRanks expert_ranks_;
  std::vector<Family> families_;  // of the run's masters, and so are:
  std::optional<std::vector<PartialSum>> partial_sums_;
  std::map<int64_t, comm::Group> sharers_;  // of tensor_, by their number (MasterTensor::sharers)
  std::optional<std::vector<TensorElements>> written_;
  Waits waits_;
  std::optional<DividedMatrices> matrices_;
  std::optional<LayerShards> shards_;
  std::optional<Overlap> overlap_;
  std::set<std::string> names_;  // of sums received from another rank
};

}  // namespace braid::train
