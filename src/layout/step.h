// What a layout has its ranks do in a training step, as facts that no clock is needed for: seconds of products and
// memory traffic from a roof, calls of collectives with their bytes, parameters, and bytes retained for the backward
// pass (plan/memory.h). Two accounts of time read them: a closed form (cost.h) and a replay in virtual time (replay.h).
//
// Calls and types are those of the trainer: sums of activations and gradients in FP32, gathered inputs and rows for
// experts in the products' type (docs/training.md, Many ranks, has the formulas).
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/sim.h"
#include "core/step_plan.h"
#include "layout/machine.h"
#include "layout/model.h"

namespace braid::layout {

// What is divided, and how the parts of a batch are run.
struct Layout {
  train::ParallelRecipe parallel{};
  int64_t parts = 1;  // of a rank's rows
  Recompute::Kind recompute = Recompute::Kind::none;
};
std::string name_of(const Layout& layout, int64_t ranks);  // "dp 4 x tp 2 x ep 8, zero 1"
std::string name_of(Recompute::Kind kind);

struct Task {
  int64_t ranks = 1, batch = 1, length = 4096;  // batch: rows of a step
  bool bf16 = true;
  bool bf16_sums = false;  // of activations and their gradients; false: in FP32, as `braid train`
  double imbalance = 1;    // rows of the busiest rank's experts over the mean
  // Gradients and weights of ranks that share a batch travel during the passes of other layers, as FSDP and Megatron's
  // optimiser have them do; sums of a grid's input gradients travel behind the gradients of weights. False: they are
  // waited for, as by `braid train` without parallel.overlap.
  bool overlap = true;
  // What lies in the memory of the host instead of the device's, over Device::host_gb_per_s: moments, and activations
  // between the passes of their layer.
  bool offload_optimizer = false, offload_activations = false;
};

// Ranks that make a call together. `batch`: those that sum gradients; `replicas`: those of the same experts;
// `copies`: d of a grid.
enum class Axis : uint8_t { tensor, hidden, context, experts, batch, copies, replicas, pipe };
constexpr int kAxes = 8;
const char* name_of(Axis axis);

struct Call {
  comm::Op op = comm::Op::all_reduce;
  Axis axis = Axis::tensor;
  double bytes = 0;   // of the whole vector; of an all-to-all what each rank sends
  int64_t ranks = 0;  // consecutive ones of the axis, which make it; 0: all of them
  double behind = 0;  // seconds of computing meanwhile

  double waited(double seconds) const { return seconds > behind ? seconds - behind : 0; }
};

// One layer on one rank, in one part of the batch.
struct LayerWork {
  double forward = 0, backward = 0;  // seconds of computing, recomputation included
  std::vector<Call> calls_forward{}, calls_backward{};
  // Of gradients that ranks of the tensor axis have parts of, which have the same heads or other tokens: once a step.
  // Where gradients of a layer leave it at once (zero 2 and 3) they are among those of its backward pass.
  std::vector<Call> sums{};
  double dense = 0, experts = 0;  // parameters
  double kept = 0;                // bytes, from the forward to the backward pass
  double traffic = 0;             // bytes of all activations between its products
  double working = 0;             // bytes while its backward pass runs, besides what is kept: an estimate
};

// A stage of the pipeline: in every chunk layers in order, by their index in StepWork::layers.
struct StageWork {
  std::vector<std::vector<size_t>> chunks{};
  std::vector<double> in_flight{};                                        // most parts that a chunk keeps at once
  double dense = 0, experts = 0;                                          // parameters
  double dense_layer = 0, experts_layer = 0, rest = 0, rest_experts = 0;  // the largest layer's; of no layer
};

struct StepWork {
  Layout layout{};
  int64_t ranks = 1;
  double tokens = 0;                // of a part on the ranks that share its rows: those of a rank, before sp
  std::vector<LayerWork> layers{};  // kinds, then what belongs to no layer
  std::vector<StageWork> stages{};
  double hop_bytes = 0;  // from a run of layers to the next, and back
  std::array<comm::Groups, kAxes> groups{};

  const comm::Groups& group(Axis axis) const { return groups[static_cast<size_t>(axis)]; }
  comm::Groups group(const Call& call) const {
    const comm::Groups& all = group(call.axis);
    return {call.ranks > 0 ? static_cast<int>(call.ranks) : all.size, all.stride};
  }
  int64_t parts() const { return layout.parts; }
  bool is_layer(size_t index) const { return index + 2 < layers.size(); }
};

// The layout is legal for the model and the task.
StepWork work_of(const Model& model, const Machine& machine, const Task& task, const Layout& layout);

// Bytes that a rank sends in a call.
double bytes_sent(const Call& call, const comm::Groups& group);

}  // namespace braid::layout
