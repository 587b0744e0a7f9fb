// A recipe, opened: the model it starts from, its data, and the loss of one on the other. What is asked for and not
// there, or does not fit together, is an Error before the first step.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/step_plan.h"
#include "core/tape.h"
#include "data/loader.h"
#include "models/masters.h"
#include "models/model.h"
#include "nn/precision.h"
#include "train/recipe.h"
#include "train/trainer.h"

namespace braid::train {

// Arithmetic of a step for each of its tokens: 6 for every parameter of a product that a token meets, and what
// attention and scan do besides over sequences of `length` (training.md 1.3), forward and twice again backward.
double flops_per_token(const models::Config& config, int64_t length);

// The config that a recipe starts from, without any weights.
models::Config config_of(const Recipe& recipe);

// What its [lora] asks for.
models::AdapterSpec adapter_spec(const Recipe& recipe);

class Session {
 public:
  // Reads the weights; a recipe with `config` first writes random ones into out/init.
  Session(const Recipe& recipe, Ctx& ctx);

  // For a Trainer, which this outlives.
  Run run();
  models::Model& model() { return *model_; }
  const models::Masters& masters() const { return masters_; }
  const data::Loader& data() const { return *data_; }
  const StepPlan& plan() const { return plan_; }
  const std::optional<nn::Precision>& precision() const { return precision_; }  // where the recipe quantises products

 private:
  void open_data();
  void loss(Ctx& ctx, const data::Batch& part, const Totals& totals, bool backward, LossSums& sums);

  const Recipe& recipe_;
  std::filesystem::path origin_;
  models::Masters masters_;
  std::unique_ptr<models::Model> model_;
  std::optional<nn::Precision> precision_;
  std::optional<data::Loader> data_, held_out_;
  Tape tape_;
  StepPlan plan_;
  nn::RouterWatch routers_;
  nn::Draws draws_;
};

}  // namespace braid::train
