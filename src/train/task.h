// What a model is trained to do with its log-probabilities after pretraining, instead of predicting every token: follow
// a teacher (distill.h), prefer one answer to another (preference.h), earn rewards (policy.h). Language (language.h)
// runs the passes; a task sees a batch part by part, computes losses from token losses on the tape, and adds to
// sums. Losses are means over the whole batch, so that no cut into parts changes a bit.
#pragma once
#include <memory>
#include <span>

#include "data/batch.h"
#include "models/model.h"
#include "train/objective.h"
#include "train/recipe.h"

namespace braid::train {

// Rows of a batch.
struct TaskPart {
  const data::Batch& rows;
  const data::Batch& whole;  // the batch
  bool held_out = false;
};

class Task {
 public:
  virtual ~Task() = default;

  // Before the pass over a part: those of frozen models.
  virtual void look(Ctx& ctx, const TaskPart& part) = 0;
  // The pass. With a tape it leaves the gradient of what it adds to "loss" on it.
  virtual void run(nn::Run& run, models::Model& model, const Tensor& ids, const Tensor& targets, const TaskPart& part,
                   Sums& sums) = 0;
};

// The task of a recipe whose model of `config` starts from the folder `start`; null: language modelling. `maps`: those
// of Distill. Error for a teacher of another vocabulary. A cache of a teacher that is missing is made.
std::unique_ptr<Task> make_task(const Recipe& recipe, const models::Config& config, const io::ModelPath& start,
                                std::span<Param> maps, Ctx& ctx);

// Error when the tables [distill], [preference] and [policy] do not fit each other, the data or the losses of language
// modelling.
void check_task(const Recipe& recipe);

// Does the loss need whole answers?
bool rates_answers(const Recipe& recipe);

}  // namespace braid::train
