// A closed form of a step's time and of a rank's memory. Collectives take alpha + bytes / beta by the algorithm that
// comm chooses, beta by how many ranks share a card (arXiv 2502.08145, section 5, with latencies); a pipeline takes the
// slowest stage's passes, and of the others one part's (arXiv 2104.04473, section 2.2, for unequal stages).
#pragma once
#include <array>

#include "layout/step.h"

namespace braid::layout {

// Bytes of the rank that needs most. The working set is an estimate; the rest follows from shapes.
struct Memory {
  double masters = 0, working = 0, gradients = 0, moments = 0, activations = 0, passes = 0;
  double sum() const { return masters + working + gradients + moments + activations + passes; }
};

struct Cost {
  double step = 0;     // seconds; the sum of the next five
  double compute = 0;  // of the slowest stage's passes
  double waits = 0;    // its collectives within the passes
  double bubble = 0;   // its idle time, and what parts take from stage to stage
  double state = 0;    // gradients and weights of ranks that share a batch, as far as they are not hidden
  double optimizer = 0;
  double hidden = 0;                    // communication behind computing
  double mfu = 0;                       // of the device's peak
  std::array<double, kAxes> bytes{};    // that a rank of the busiest stage sends, by axis
  std::array<double, kAxes> seconds{};  // in calls, hidden or not
  double host_bytes = 0;                // from the device to its host in a step, and as many back
  Memory memory{};

  double exposed() const { return waits + state; }
};

// The call as comm is asked for it, by which the closed form and the replay find its algorithm. Training lists the
// counts of its all-to-alls (nn/expert_routes.cc, nn/context_parallel.cc).
comm::Request request_of(comm::Op op, double bytes, int ranks);
// Seconds of a call by all its groups at once.
double seconds_of(const Call& call, const comm::Groups& group, const comm::Cluster& cluster);
// Of a message from every rank to the rank `distance` further on.
double shift_seconds(double bytes, int distance, const comm::Cluster& cluster);

// Of the state of one stage: what is sent at the end of a step and in each part, and memory. Shared by both accounts.
struct StateCalls {
  std::vector<Call> grads{}, weights{};               // once a step
  std::vector<Call> part_forward{}, part_backward{};  // of zero 2 and 3, all layers of the stage together
};
StateCalls state_calls(const StepWork& work, const StageWork& stage);

// Of the optimiser, which reads gradient, master and moments and writes all but the first, and the rounded copy.
// Moments of the host come and go meanwhile.
double optimizer_seconds(const Machine& machine, const Task& task, const StepWork& work, const StageWork& stage);

Memory memory_of(const StepWork& work, const Task& task);
Cost cost_of(const Model& model, const Machine& machine, const Task& task, const StepWork& work);

}  // namespace braid::layout
