// The step loop. It knows nothing of what it trains but the Params over the masters, and a callable that computes the
// loss of a part of a batch and adds its gradients; a batch is a function of the step's number alone. A run that is
// killed and resumed therefore gives the bits of one that was not, whatever the threads and the parts.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/ctx.h"
#include "data/batch.h"
#include "models/masters.h"
#include "models/model.h"
#include "nn/run.h"
#include "train/checkpoint.h"
#include "train/log.h"
#include "train/optimizer.h"
#include "train/recipe.h"
#include "train/spike.h"

namespace braid::train {

// Targets of a whole batch, over which its losses are means.
struct Totals {
  int64_t main = 0, tokens = 0;
  std::array<int64_t, models::kMtpSteps> mtp{};  // of each step of the prediction block
};

// What the parts of a batch add up to, in nats. Each part carries on where the one before it stopped, so that the cut
// changes no bit.
using LossSums = models::Model::LossSums;

// Adds what `part` of a batch contributes to the sums, and with `backward` to the gradients of their means.
using LossFn = std::function<void(Ctx& ctx, const data::Batch& part, const Totals& totals, bool backward, LossSums&)>;
using BatchFn = std::function<void(int64_t step, data::Batch& batch)>;

// What a run is made of; everything outlives the Trainer.
struct Run {
  const Recipe& recipe;
  models::Masters& masters;
  std::vector<Param*> params;
  std::filesystem::path origin;  // whose config and tokenizer go into checkpoints
  LossFn loss;
  BatchFn batch, held_out;             // held_out: empty without [eval]
  nn::RouterWatch* routers = nullptr;  // of what `loss` runs; null without a mixture
  double flops_per_token = 0, roof_flops = 0;
};

enum class Outcome { finished, interrupted, terminated };

class Trainer {
 public:
  Trainer(Run run, Ctx& ctx);
  void resume(const std::filesystem::path& checkpoint);
  // To the last step, or to a signal (sys/interrupt.h); the state is saved either way. `report` sees every logged step.
  // Error (a failed run) when a loss is no number: the batch is written beside the checkpoints first.
  Outcome train(const std::function<void(const StepLog&)>& report);
  const Progress& progress() const { return progress_; }

 private:
  StepLog step();
  void accumulate(const Totals& totals, LossSums& sums);
  [[noreturn]] void give_up(const char* what) const;
  void balance(StepLog& log, const Totals& totals, bool update);
  double held_out_loss();
  void save();
  Arrays arrays() { return {run_.masters, optimizer_.first(), optimizer_.second(), mean_}; }

  Run run_;
  Ctx& ctx_;
  Optimizer optimizer_;
  Checkpoints checkpoints_;
  Progress progress_;
  std::vector<float> mean_;  // of the weights, with [ema]
  std::unique_ptr<Log> log_;
  data::Batch batch_, part_;
  int64_t saved_ = -1;  // step of the last checkpoint
};

Totals totals_of(const data::Batch& batch);
// Rows [begin, end) of a batch as one of its own.
void take_rows(const data::Batch& batch, int64_t begin, int64_t end, data::Batch& out);

}  // namespace braid::train
