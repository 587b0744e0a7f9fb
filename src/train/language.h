// A language model as an objective: the model of a recipe, its data and its loss, with the prediction block, the
// balance of routers and masked targets, or what a task (task.h) makes of its log-probabilities. Missing or
// inconsistent inputs are an Error before the first step.
#pragma once
#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/step_plan.h"
#include "core/tape.h"
#include "data/loader.h"
#include "data/reading.h"
#include "models/master_weights.h"
#include "models/model.h"
#include "nn/balance.h"
#include "nn/precision.h"
#include "train/depth.h"
#include "train/mesh.h"
#include "train/nest.h"
#include "train/objective.h"
#include "train/recipe.h"
#include "train/rollout.h"
#include "train/stage_passes.h"
#include "train/task.h"
#include "train/token_shares.h"

namespace braid::train {

class Language final : public Objective {
 public:
  // Opens the data, then reads the weights; a recipe with `config` first writes random ones into out/init. The recipe
  // outlives this, and so does `mesh`: the ranks that share the run, or null. `reading` is told how far the data is
  // read.
  Language(const Recipe& recipe, Ctx& ctx, Mesh* mesh = nullptr, const data::Reading& reading = {});

  models::MasterWeights& masters() override { return trained_->masters; }
  const models::MasterWeights& whole() override { return whole_ ? *whole_ : masters(); }
  std::vector<Param*> params() override { return trained_->masters.params(*trained_->model); }
  int64_t draw(int64_t step, bool held_out) override;
  bool holds_out() const override { return held_out_.has_value(); }
  int64_t held_out_batches() const override { return held_out_ ? held_out_->steps_per_epoch() : 0; }
  int64_t tokens() const override { return std::ssize(batch_.ids); }
  double flops_per_token() const override { return flops_; }
  void run(Ctx& ctx, int64_t begin, int64_t end, bool backward, Sums& sums) override;
  void run_parts(Ctx& ctx, std::span<const Range> parts, bool backward, Sums& sums) override;
  void complete(Sums& sums) override;
  void finish(bool updated, Sums& sums) override;
  void write(std::span<const float> values, const std::filesystem::path& folder) override;
  std::filesystem::path weights_in(const std::filesystem::path& folder) const override;
  void lay_out(const std::filesystem::path& folder) override;
  void write_state(const std::filesystem::path& folder) const override;
  void read_state(const std::filesystem::path& folder) override;
  void write_batch(const std::filesystem::path& file) const override;
  Facts facts() const override;
  std::vector<std::string> results() const override;  // the sizes that routers of nested models chose

  // The model in training, for runs between steps: it has the weights of the last step.
  std::shared_ptr<models::Model> model() const { return {trained_, trained_->model.get()}; }
  const data::Loader& data() const { return *data_; }  // unless the run generates its data
  std::vector<std::string> notes() const;              // on the data, for the user, a line each
  std::optional<double> entropy_floor() const { return data_ ? data_->entropy_floor() : std::nullopt; }
  const StepPlan& plan() const { return plans_.back(); }
  const std::optional<nn::Precision>& precision() const { return precision_; }  // if the recipe quantises products

 private:
  void write_sizes(const std::filesystem::path& folder) const;  // of the models inside a nested one
  // The model refers to the masters' values: one handle keeps both alive.
  struct Trained {
    Trained(DType products, const models::Parted& parted) : masters(products, parted) {}
    models::MasterWeights masters;
    std::unique_ptr<models::Model> model;
  };
  // Targets of the whole batch, over which its losses are means.
  struct Totals {
    int64_t main = 0, tokens = 0;
    int64_t samples = 0;                           // sequences with a target
    std::array<int64_t, models::kMtpSteps> mtp{};  // of each step of the prediction block
  };
  static Totals totals_of(const data::Batch& batch);
  int64_t rows() const { return rollouts_ ? rollout_rows(recipe_) : data_->rows(); }
  int64_t length() const { return rollouts_ ? rollout_length(recipe_) : data_->length(); }
  void open_data(const models::Config& config, const data::Reading& reading);
  nn::Run run_of(Ctx& ctx, const data::Batch& part, TokenShares& shares, bool backward);
  void run_undifferentiated(nn::Run& run, const data::Batch& part);
  void predict(nn::Run& run, const Tensor& x, const Tensor& ids, const Tensor& targets, const data::Batch& part,
               Sums& sums);
  void name_losses(Sums& sums) const;
  models::Model& current() { return nested_ ? nested_->model(budget_) : *trained_->model; }
  void use_budget(size_t budget, int threads, std::optional<int64_t> step);
  void finish_budget(bool updated, Sums& sums);
  void run_budgets(Ctx& ctx, std::span<const Range> parts, bool backward, Sums& sums);
  void make_plans(const models::Config& config, Ctx& ctx);

  std::filesystem::path origin(int threads) const;

  const Recipe& recipe_;
  Mesh* mesh_;
  std::filesystem::path origin_;
  std::shared_ptr<Trained> trained_;
  std::optional<models::MasterWeights> whole_;  // where the masters are parts, on the first rank: tensors for files
  std::optional<nn::Precision> precision_;
  std::optional<data::Loader> data_, held_out_;
  std::optional<Rollouts> rollouts_;  // in place of data_
  data::Batch batch_, part_;
  ContextModes modes_;
  TokenShares shares_;  // of the part in computation
  bool held_out_batch_ = false;
  Totals totals_;
  double flops_ = 0;  // of a token in all ranks that share a model
  std::optional<NestedModels> nested_;
  size_t budget_ = 0;           // of the models inside a nested one: the one of this step
  std::unique_ptr<Task> task_;  // null: predicting every token
  Tape tape_;
  std::vector<StepPlan> plans_;  // of a model with a loop: by its steps with gradients, from 1; of nested ones each
  StepPlan* plan_ = nullptr;     // of this step
  std::optional<StagePasses> passes_;  // of a stage of a pipeline; the plans are those of its chunks
  nn::RouterWatch routers_;
  nn::Routes routes_;  // of the part in computation, with policy.replay_routes
  nn::Probe replay_;
  nn::Draws draws_;
  // Of a model with a loop: the loop, the steps drawn for this step, and the states before those with gradients.
  std::optional<models::LoopSpec> loop_;
  Depth depth_;
  std::vector<float> starts_;
  nn::StateView no_state_;
};

}  // namespace braid::train
