#include "layout/cost.h"

#include <algorithm>
#include <vector>

namespace braid::layout {
namespace {

using comm::Op;

// The state of the optimiser is divided over `sharing` ranks of those that have the same parameters.
struct Sharing {
  double dense = 1, experts = 1;
  int64_t zero = 0;
};

Sharing sharing_of(const StepWork& work) {
  const train::ParallelRecipe& p = work.layout.parallel;
  const double batch = work.group(Axis::batch).size,
               replicas = p.divides_experts() ? work.group(Axis::replicas).size : batch;
  return {batch, replicas, p.grid.empty() ? p.zero : p.axes().z > 1 ? 1 : 0};
}

// Four bytes a parameter: gradients and masters travel in FP32.
struct Families {
  Axis dense = Axis::batch, experts = Axis::batch;

  void add(std::vector<Call>& to, Op op, double dense_values, double expert_values) const {
    if (dense == experts) dense_values += expert_values, expert_values = 0;
    if (dense_values > 0) to.push_back({op, dense, 4 * dense_values});
    if (expert_values > 0) to.push_back({op, experts, 4 * expert_values});
  }
};

// Memory that a rank has of values of which it keeps a part: its own, and in a pass those of the largest layer and of
// no layer (train/origin.cc, state_bytes).
double in_pass(double values, double layer, double rest, double ranks) {
  return values / ranks + (layer + rest) * (1 - 1 / ranks);
}

struct StageTimes {
  double forward = 0, backward = 0;  // computing, a part
  double waits = 0;                  // in a part, collectives that it waits for
  double state = 0, hidden = 0;      // once a step
  double sums = 0;                   // once a step, before the state
  double optimizer = 0;

  double part() const { return forward + backward + waits; }
};

class Accounting {
 public:
  Accounting(const Machine& machine, const StepWork& work, Cost& cost) : machine_(machine), work_(work), cost_(cost) {}

  double seconds(const Call& call) const { return seconds_of(call, work_.group(call), machine_.links); }
  // That nothing hides.
  double seconds(const std::vector<Call>& calls) const {
    double sum = 0;
    for (const Call& call : calls) sum += call.waited(seconds(call));
    return sum;
  }
  double hidden(const std::vector<Call>& calls) const {
    double sum = -seconds(calls);
    for (const Call& call : calls) sum += seconds(call);
    return sum;
  }
  void count(const std::vector<Call>& calls, double times) {
    for (const Call& call : calls) {
      const auto at = static_cast<size_t>(call.axis);
      cost_.bytes[at] += times * bytes_sent(call, work_.group(call));
      cost_.seconds[at] += times * seconds(call);
    }
  }

 private:
  const Machine& machine_;
  const StepWork& work_;
  Cost& cost_;
};

// Of `total` seconds of calls, one a layer, that begin when each layer's computing is over, with `behind` seconds of
// computing in all: what is left when that ends.
double left_over(double total, double behind, double layers) {
  if (total == 0) return 0;
  return std::max(total - behind * (1 - 1 / layers), total / layers);
}

}  // namespace

StateCalls state_calls(const StepWork& work, const StageWork& stage) {
  const train::ParallelRecipe& p = work.layout.parallel;
  const Families families{Axis::batch, p.divides_experts() ? Axis::replicas : Axis::batch};
  const double dense = stage.dense - stage.rest, experts = stage.experts - stage.rest_experts, all = stage.dense;
  StateCalls calls;
  if (!p.grid.empty() && p.axes().z > 1) {
    const auto z = static_cast<double>(p.axes().z);
    calls.grads = {{Op::reduce_scatter, Axis::batch, 4 * (all + stage.experts)},
                   {Op::all_reduce, Axis::copies, 4 * (all + stage.experts) / z}};
    calls.weights = {{Op::all_gather, Axis::batch, 4 * (all + stage.experts)}};
    return calls;
  }
  if (!p.grid.empty()) {
    calls.grads = {{Op::all_reduce, Axis::copies, 4 * (all + stage.experts)}};
    return calls;
  }
  if (p.zero == 0) families.add(calls.grads, Op::all_reduce, all, stage.experts);
  if (p.zero == 1) families.add(calls.grads, Op::reduce_scatter, all, stage.experts);
  if (p.zero == 1 || p.zero == 2) families.add(calls.weights, Op::all_gather, all, stage.experts);
  if (p.zero > 1) {
    families.add(calls.grads, Op::reduce_scatter, stage.rest, stage.rest_experts);
    families.add(calls.part_backward, Op::reduce_scatter, dense, experts);
  }
  if (p.zero > 2) {
    families.add(calls.weights, Op::all_gather, stage.rest, stage.rest_experts);
    families.add(calls.part_forward, Op::all_gather, dense, experts);
    families.add(calls.part_backward, Op::all_gather, dense, experts);
  }
  return calls;
}

Memory memory_of(const StepWork& work, const Task& task) {
  const Sharing by = sharing_of(work);
  Memory most;
  for (const StageWork& stage : work.stages) {
    const double all = stage.dense + stage.experts;
    const double own = stage.dense / by.dense + stage.experts / by.experts;
    const double passing = in_pass(stage.dense, stage.dense_layer, stage.rest, by.dense) +
                           in_pass(stage.experts, stage.experts_layer, stage.rest_experts, by.experts);
    const double summed = stage.dense_layer / by.dense + stage.experts_layer / by.experts;
    const double weights = by.zero < 3 ? all : passing;
    Memory m{.masters = 4 * weights,
             .working = task.bf16 ? 2 * weights : 0,
             .gradients = 4 * (by.zero < 2 ? all : passing + summed),
             .moments = 8 * (by.zero < 1 ? all : own)};
    if (task.offload_optimizer) m.moments = 0;
    double kept_most = 0;
    for (size_t c = 0; c < stage.chunks.size(); ++c) {
      double kept = 0;
      for (const size_t index : stage.chunks[c]) {
        kept += work.layers[index].kept;
        kept_most = std::max(kept_most, work.layers[index].kept);
        m.passes = std::max(m.passes, work.layers[index].working);
      }
      m.activations += kept * stage.in_flight[c];
    }
    // Of the layer that computes, and of one on its way.
    if (task.offload_activations) m.activations = std::min(m.activations, 2 * kept_most);
    if (work.stages.size() > 1) m.passes += 4 * work.hop_bytes;  // on the way to and from both neighbours
    if (m.sum() > most.sum()) most = m;
  }
  return most;
}

namespace {

double updated(const StepWork& work, const StageWork& stage) {
  const Sharing by = sharing_of(work);
  return by.zero > 0 ? stage.dense / by.dense + stage.experts / by.experts : stage.dense + stage.experts;
}

}  // namespace

double optimizer_seconds(const Machine& machine, const Task& task, const StepWork& work, const StageWork& stage) {
  const double own = updated(work, stage), here = 30 * own / machine.device.bytes_per_s();
  return task.offload_optimizer ? std::max(here, 8 * own / machine.device.host_bytes_per_s()) : here;
}

namespace {

// Of one layer: passes with the calls that they wait for, and its state.
struct LayerSeconds {
  double forward = 0, backward = 0, waits = 0;
  double gather = 0, scatter = 0;  // of zero 3, and 2; around each pass
  double shared = 0;               // LayerWork::sums
  double hidden = 0;               // in its own passes
};

std::vector<LayerSeconds> layer_seconds(const Accounting& accounts, const StepWork& work) {
  std::vector<LayerSeconds> list;
  for (size_t i = 0; i < work.layers.size(); ++i) {
    const LayerWork& layer = work.layers[i];
    const double before = accounts.seconds(layer.calls_forward), after = accounts.seconds(layer.calls_backward);
    LayerSeconds t{.forward = layer.forward + before,
                   .backward = layer.backward + after,
                   .waits = before + after,
                   .shared = accounts.seconds(layer.sums),
                   .hidden = accounts.hidden(layer.calls_backward)};
    if (work.layout.parallel.zero > 1 && work.is_layer(i)) {
      const StateCalls calls = state_calls(work, {.dense = layer.dense, .experts = layer.experts});
      t.gather = accounts.seconds(calls.part_forward);
      t.scatter = accounts.seconds(calls.part_backward) - t.gather;
    }
    list.push_back(t);
  }
  return list;
}

// What a part waits for gathers that run one layer ahead, and in the backward pass share the links with the sums of the
// layer before.
double gather_waits(const std::vector<LayerSeconds>& layers, const std::vector<size_t>& chunk) {
  double waits = layers[chunk.front()].gather + layers[chunk.back()].gather;
  for (size_t i = 0; i < chunk.size(); ++i) {
    const LayerSeconds& own = layers[chunk[i]];
    if (i + 1 < chunk.size()) waits += std::max(0.0, layers[chunk[i + 1]].gather - own.forward);
    const double sums = i + 1 < chunk.size() ? layers[chunk[i + 1]].scatter : 0;
    if (i > 0 && layers[chunk[i - 1]].gather > 0)
      waits += std::max(0.0, layers[chunk[i - 1]].gather + sums - own.backward);
  }
  return waits;
}

StageTimes times_of(const Accounting& accounts, const std::vector<LayerSeconds>& layers, const Machine& machine,
                    const Task& task, const StepWork& work, const StageWork& stage) {
  StageTimes t{.optimizer = optimizer_seconds(machine, task, work, stage)};
  double forward = 0, backward = 0, gathers = 0, sums = 0, exposed = 0, hidden = 0, count = 0;
  for (const auto& chunk : stage.chunks) {
    for (const size_t index : chunk) {
      t.forward += work.layers[index].forward, t.backward += work.layers[index].backward;
      t.waits += layers[index].waits;
      t.sums += layers[index].shared;
      hidden += layers[index].hidden;
      forward += layers[index].forward, backward += layers[index].backward;
      gathers += 2 * layers[index].gather, sums += layers[index].scatter;
      ++count;
    }
    exposed += gathers > 0 ? gather_waits(layers, chunk) : 0;
  }
  const StateCalls calls = state_calls(work, stage);
  const double grads = accounts.seconds(calls.grads), weights = accounts.seconds(calls.weights);
  const auto parts = static_cast<double>(work.parts());
  if (!task.overlap) {
    t.waits += gathers + sums;
    t.state = t.sums + grads + weights;
    return t;
  }
  // The links may be what is busy all the time.
  exposed = std::max(exposed, gathers + sums - forward - backward);
  t.waits += exposed;
  // Sums follow their layers: those of the last part, and what has queued up before.
  t.state = std::max(left_over(sums, backward, count), parts * (sums - backward) - (parts - 1) * forward) +
            left_over(grads, backward, count) + left_over(weights, forward, count);
  t.hidden = parts * (gathers + sums - exposed + hidden) + grads + weights - t.state;
  t.state += t.sums;
  return t;
}

// What a rank of a stage sends in a step.
void count_calls(const StepWork& work, const StageWork& stage, double hop_seconds, Accounting& accounts, Cost& cost) {
  const auto parts = static_cast<double>(work.parts());
  for (const auto& chunk : stage.chunks) {
    for (const size_t index : chunk) {
      accounts.count(work.layers[index].calls_forward, parts);
      accounts.count(work.layers[index].calls_backward, parts);
      accounts.count(work.layers[index].sums, 1);
    }
  }
  const StateCalls calls = state_calls(work, stage);
  accounts.count(calls.grads, 1), accounts.count(calls.weights, 1);
  accounts.count(calls.part_forward, parts), accounts.count(calls.part_backward, parts);
  if (work.stages.size() == 1) return;
  const double hops = 2 * parts * static_cast<double>(stage.chunks.size());  // one each way; the ends send one less
  cost.bytes[static_cast<size_t>(Axis::pipe)] = hops * work.hop_bytes;
  cost.seconds[static_cast<size_t>(Axis::pipe)] = hops * hop_seconds;
}

}  // namespace

Cost cost_of(const Model& model, const Machine& machine, const Task& task, const StepWork& work) {
  Cost cost;
  Accounting accounts(machine, work, cost);
  const auto parts = static_cast<double>(work.parts()), stages = static_cast<double>(work.stages.size()),
             chunks = static_cast<double>(work.layout.parallel.virtual_stages);
  const std::vector<LayerSeconds> layers = layer_seconds(accounts, work);
  double sum = 0;
  StageTimes slowest;
  const StageWork* busiest = nullptr;
  for (const StageWork& stage : work.stages) {
    const StageTimes t = times_of(accounts, layers, machine, task, work, stage);
    sum += t.part();
    cost.state = std::max(cost.state, t.state), cost.hidden = std::max(cost.hidden, t.hidden);
    cost.optimizer = std::max(cost.optimizer, t.optimizer);
    if (t.part() > slowest.part()) slowest = t, busiest = &stage;
  }
  const double hop = stages > 1 ? shift_seconds(work.hop_bytes, work.group(Axis::pipe).stride, machine.links) : 0;
  cost.compute = parts * (slowest.forward + slowest.backward);
  cost.waits = parts * slowest.waits;
  cost.bubble = (sum - slowest.part()) / chunks;
  // On its way through all runs the first part waits for every message, and so does the last one back. In between a
  // stage with several runs has another one to compute; one that takes turns waits once a part.
  cost.bubble += hop * (2 * (stages * chunks - 1) + (chunks > 1 || stages == 1 ? 0 : parts - 1));
  cost.step = cost.compute + cost.waits + cost.bubble + cost.state + cost.optimizer;
  count_calls(work, *busiest, hop, accounts, cost);
  cost.host_bytes = task.offload_optimizer ? 8 * updated(work, *busiest) : 0;
  for (const auto& chunk : busiest->chunks) {
    for (const size_t index : chunk) cost.host_bytes += task.offload_activations ? parts * work.layers[index].kept : 0;
  }
  const double flops = model.flops_per_token() * static_cast<double>(task.batch) * static_cast<double>(task.length);
  cost.mfu = flops / (cost.step * static_cast<double>(task.ranks) * machine.device.tflops * 1e12);
  cost.memory = memory_of(work, task);
  return cost;
}

}  // namespace braid::layout
