// One stage of a pipeline (pipeline.h) at work: passes of the parts of a batch through its layers. The residual stream
// goes to the stage with the next layers, its gradient comes back, both in F32. A part that waits for its gradient has
// a tape, an arena and a plan of its own. Sends do not wait, so that neighbours may send to each other; all have
// arrived when the parts are through.
#pragma once
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "comm/group.h"
#include "core/step_plan.h"
#include "core/tape.h"
#include "data/batch.h"
#include "models/model.h"
#include "sys/function_ref.h"
#include "train/pipeline.h"
#include "train/recipe.h"
#include "train/token_shares.h"

namespace braid::train {

// Operations of a token in every layer, and in what follows the last one: by what stages are cut.
struct LayerCosts {
  std::vector<double> layers{};
  double last = 0;
};
LayerCosts layer_costs(const Recipe& recipe, const models::Config& whole, int64_t length);

// The layers of a stage, so cut that all runs cost nearly the same operations. Error when there are more runs than
// layers.
models::Stage stage_of(const Recipe& recipe, const models::Config& whole, int64_t length, int64_t stage);
PipelineShape pipeline_shape(const Recipe& recipe);

// One run of a stage's layers; the first of the model does the embedding look-up, the last computes the losses.
struct Chunk {
  Range layers;
  bool first = false, last = false;
};
std::vector<Chunk> chunks_of(const models::Stage& stage);

// Records what StagePasses runs of a chunk up to its backward pass, on the tape of a dry Ctx. `tokens`: of the batch's
// part, of which the run may have a share.
void rehearse_chunk(nn::Run& run, models::Model& model, const Chunk& chunk, int64_t tokens,
                    const models::Model::LossOptions& options);

class StagePasses {
 public:
  // `stages`: a rank of each, in order. `plans`: of the model's chunks.
  StagePasses(const Recipe& recipe, models::Model& model, comm::Group& stages, const Ctx& ctx,
              std::span<const StepPlan> plans);

  struct Callbacks {
    sys::FunctionRef<nn::Run(Ctx& ctx, const data::Batch& part, TokenShares& shares)> run_of;
    // The losses, from x, what the last layer gave.
    sys::FunctionRef<void(nn::Run& run, const Tensor& x, const Tensor& ids, const Tensor& targets,
                          const data::Batch& part)>
        predict;
  };
  // Parts of `batch`: its rows, in as many parts as the recipe says. With `backward` the gradients of their losses are
  // added to those of the parameters; without, passes are made in `ctx`.
  void run(Ctx& ctx, const data::Batch& batch, std::span<const Range> parts, bool backward, const Callbacks& callbacks);

  int64_t bytes() const;     // of all arenas
  int64_t outgrown() const;  // requests that their plans did not foresee (core/arena_plan.h)

 private:
  // A part between its forward and its backward pass.
  struct Slot {
    Slot(const Ctx& like, const StepPlan& own);
    StepPlan plan;
    Arena arena;
    Tape tape;
    Ctx ctx;
    data::Batch part;
    TokenShares shares;
    Ref in,
        out;  // [T, D] F32, this rank's share of the tokens; `in` of the first chunk and `out` of the last are empty
  };
  struct Sent {
    std::vector<float> values;
    comm::Handle handle;
  };

  Slot& slot(const PipelinePass& pass);
  void forward(Ctx& ctx, const PipelinePass& pass, const data::Batch& part, const Callbacks& callbacks, Slot* keep);
  void backward(const PipelinePass& pass);
  int64_t number(const PipelinePass& pass) const { return pass.chunk * shape_.stages + stages_.rank(); }
  void send(const View& values, int64_t to, bool forward);
  void receive(const MutView& values, int64_t from, int64_t to);
  void drop_sent(bool wait);

  models::Model& model_;
  comm::Group& stages_;
  PipelineShape shape_;
  std::vector<PipelinePass> passes_;
  std::vector<Chunk> chunks_;
  std::vector<std::vector<std::unique_ptr<Slot>>> slots_;  // by chunk
  std::deque<Sent> sent_;
  std::vector<std::vector<float>> spare_;  // buffers of what has arrived
  data::Batch part_;                       // of a pass without a gradient, and its shares
  TokenShares shares_;
};

}  // namespace braid::train
