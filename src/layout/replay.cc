#include "layout/replay.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "sys/check.h"
#include "train/pipeline.h"

namespace braid::layout {
namespace {

using comm::Op;

// Seconds of one layer of a stage: what it waits for, and what may travel while others compute.
struct LayerTimes {
  double forward = 0, backward = 0;
  double gather = 0;   // of its weights, before each pass (zero 3)
  double scatter = 0;  // of its gradients, after each backward pass (zero 2 and 3)
  double grads = 0;    // after the last one (zero 0 and 1)
  double weights = 0;  // before the first pass of a step (zero 1 and 2)
};

// A stage: one thing computes at a time, and one call of those that nobody waits for is under way at a time.
class Stage {
 public:
  // `at_end`: seconds after the last pass: sums of what ranks share, and of state, where nothing overlaps.
  Stage(std::vector<std::vector<LayerTimes>> chunks, bool overlap, double at_end)
      : chunks_(std::move(chunks)), overlap_(overlap), at_end_(at_end) {}

  // From when the input is there; gives when the output is.
  double forward(size_t chunk, bool first_part, double ready) {
    double now = std::max(ready, computing_), begun = now;
    for (const LayerTimes& layer : chunks_[chunk]) {
      // What this layer needs was asked for when the one before it began.
      const double needed = layer.gather + (first_part && overlap_ ? layer.weights : 0);
      now = fetch(needed, first_part && layer.weights > 0 ? 0 : begun, now);
      begun = now;
      now += layer.forward;
    }
    return computing_ = now;
  }

  double backward(size_t chunk, bool last_part, double ready) {
    double now = std::max(ready, computing_), begun = now;
    for (size_t i = chunks_[chunk].size(); i-- > 0;) {
      const LayerTimes& layer = chunks_[chunk][i];
      now = fetch(layer.gather, begun, now);
      begun = now;
      now += layer.backward;
      now = leave(layer.scatter + (last_part && overlap_ ? layer.grads : 0), now);
    }
    return computing_ = now;
  }

  double end() const { return std::max(computing_ + at_end_, travelling_); }

 private:
  // Gives when it is there; `asked`: when it may begin to travel, which is no later than now.
  double fetch(double seconds, double asked, double now) {
    if (seconds == 0) return now;
    if (!overlap_) return now + seconds;
    travelling_ = std::max(travelling_, asked) + seconds;
    return std::max(now, travelling_);
  }
  // Gives when computing goes on.
  double leave(double seconds, double now) {
    if (seconds == 0) return now;
    if (!overlap_) return now + seconds;
    travelling_ = std::max(travelling_, now) + seconds;
    return now;
  }

  std::vector<std::vector<LayerTimes>> chunks_;
  bool overlap_;
  double at_end_;
  double computing_ = 0, travelling_ = 0;
};

}  // namespace

double Replay::simulated(Op op, const comm::Groups& group, int64_t bytes) {
  const auto [at, fresh] = known_.try_emplace({static_cast<int>(op), group.size, group.stride, bytes});
  if (!fresh) return at->second;
  const comm::Request request = request_of(op, static_cast<double>(bytes), group.size);
  return at->second = comm::simulate(machine_.links, request, group).us * 1e-6;
}

// A message takes time that is linear in its bytes, and algorithms change at powers of two: those are simulated, and
// what lies between is interpolated.
double Replay::seconds(const Call& call, const comm::Groups& group) {
  if (group.size == 1) return 0;
  const double least = 4.0 * group.size;
  const double bytes = std::max(call.bytes, least);
  const auto below = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes)));
  const double low = simulated(call.op, group, below), high = simulated(call.op, group, 2 * below);
  const double at = (bytes - static_cast<double>(below)) / static_cast<double>(below);
  return low + (high - low) * at;
}

double Replay::shift(double bytes, int distance) {
  const auto whole = static_cast<int64_t>(bytes);
  const auto [at, fresh] = known_.try_emplace({-1, distance, 0, whole});
  if (fresh) at->second = comm::simulate_shift(machine_.links, whole, distance).us * 1e-6;
  return at->second;
}

double Replay::seconds(const std::vector<Call>& calls, const StepWork& work) {
  double sum = 0;
  for (const Call& call : calls) sum += call.waited(seconds(call, work.group(call)));
  return sum;
}

namespace {

// The passes of all stages; gives when the last one is over.
double play(const train::PipelineShape& shape, std::vector<Stage>& stages, double hop) {
  std::vector<std::vector<train::PipelinePass>> passes;
  for (int64_t s = 0; s < shape.stages; ++s) passes.push_back(train::pipeline_passes(shape, s));
  // When the input of every run of layers, and the gradient of its output, has arrived, by part.
  const auto runs = static_cast<size_t>(shape.stages * shape.chunks), parts = static_cast<size_t>(shape.parts);
  constexpr double kNever = -1;
  std::vector<std::vector<double>> arrived(runs + 1, std::vector<double>(parts, kNever)), returned = arrived;
  arrived[0].assign(parts, 0);
  returned[runs].assign(parts, 0);
  std::vector<size_t> next(stages.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t s = 0; s < stages.size(); ++s) {
      for (; next[s] < passes[s].size(); ++next[s]) {
        const train::PipelinePass& pass = passes[s][next[s]];
        const auto part = static_cast<size_t>(pass.part), chunk = static_cast<size_t>(pass.chunk),
                   run = chunk * stages.size() + s;
        const double ready = pass.forward ? arrived[run][part] : returned[run + 1][part];
        if (ready < 0) break;
        if (pass.forward)
          arrived[run + 1][part] = stages[s].forward(chunk, part == 0, ready) + hop;
        else
          returned[run][part] = stages[s].backward(chunk, part + 1 == parts, ready) + hop;
        moved = true;
      }
    }
  }
  double end = 0;
  for (size_t s = 0; s < stages.size(); ++s) {
    CHECK(next[s] == passes[s].size(), "stage {} waits at pass {}", s, next[s]);
    end = std::max(end, stages[s].end());
  }
  return end;
}

}  // namespace

double Replay::step_seconds(const Task& task, const StepWork& work) {
  const train::ParallelRecipe& p = work.layout.parallel;
  std::vector<LayerTimes> times;
  for (size_t i = 0; i < work.layers.size(); ++i) {
    const LayerWork& layer = work.layers[i];
    // The state of a layer is that of a stage that has it alone.
    StageWork alone{.dense = layer.dense, .experts = layer.experts};
    if (!work.is_layer(i)) alone.rest = layer.dense, alone.rest_experts = layer.experts;
    const StateCalls calls = state_calls(work, alone);
    const double gather = seconds(calls.part_forward, work);
    times.push_back({.forward = layer.forward + seconds(layer.calls_forward, work),
                     .backward = layer.backward + seconds(layer.calls_backward, work),
                     .gather = gather,
                     .scatter = seconds(calls.part_backward, work) - gather,
                     .grads = seconds(calls.grads, work),
                     .weights = seconds(calls.weights, work)});
  }
  std::vector<Stage> stages;
  double optimizer = 0;
  for (const StageWork& stage : work.stages) {
    std::vector<std::vector<LayerTimes>> chunks;
    double shared = 0;
    for (const auto& chunk : stage.chunks) {
      chunks.emplace_back();
      for (const size_t index : chunk) {
        chunks.back().push_back(times[index]);
        shared += seconds(work.layers[index].sums, work);
      }
    }
    const StateCalls calls = state_calls(work, stage);
    const double state = task.overlap ? 0 : seconds(calls.grads, work) + seconds(calls.weights, work);
    stages.emplace_back(std::move(chunks), task.overlap, shared + state);
    optimizer = std::max(optimizer, optimizer_seconds(machine_, task, work, stage));
  }
  const double hop = p.pp > 1 ? shift(work.hop_bytes, work.group(Axis::pipe).stride) : 0;
  return play({.stages = p.pp, .chunks = p.virtual_stages, .parts = work.parts()}, stages, hop) + optimizer;
}

}  // namespace braid::layout
