// What a training step retains for its backward pass, what it recomputes, and where all of it is placed in memory:
// decided before the first step from a dry pass (Ctx::dry) over the same graph at the largest batch. It never changes a
// bit: recomputation runs the same op on the same bytes.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/arena_plan.h"
#include "core/ctx.h"
#include "core/tape.h"
#include "sys/function_ref.h"

namespace braid {

// Nodes are ranked by bytes freed for each recomputed operation. none: everything that a backward reads is retained.
// selective: the best of the cheap nodes (Cost; norms, gates, activations, convolution) with retained inputs are
// dropped, within a few percent more operations. full: only the residual stream at block boundaries is retained. fit:
// the best of all nodes are dropped, as many as a budget demands (docs/internals/train.md, Recomputation).
struct Recompute {
  enum class Kind : uint8_t { none, selective, full, fit };
  Kind kind = Kind::none;
  int64_t bytes_max = 0;  // of fit: activations, their gradients and workspace
};

// "none", "selective", "full", "fit:<GiB>". Error for anything else.
Recompute parse_recompute(const std::string& text, const char* where = "memory.recompute");

inline constexpr double kSelectiveShare = 0.04;  // operations that `selective` may add to a step

struct StepPlan {
  std::vector<bool> dropped{};  // by node
  ArenaPlan arena{};
  double flops = 0;        // of the step
  double flops_again = 0;  // of which recomputed
  double bytes_moved = 0;  // read and written by its ops
  int64_t bytes = 0;       // most requested at once

  // For Tape::drop; the plan must outlive it.
  bool drops(size_t node) const { return node < dropped.size() && dropped[node]; }
};

// The declared maxima of a batch are packed in `packings` ways, such as few long sequences or many short ones: the plan
// has room for all of them, and its operation count is that of the first. `forward` records a pass over one packing on
// the tape of the Ctx it receives; what the nodes point to (sequence maps, parameters) outlives the call. With `later`
// the gradients of weights are computed after the backward pass (Tape::backward_weights). Error when a budget cannot be
// met, or when the process has not even addresses for so much.
StepPlan plan_step(const Recompute& policy, const Ctx& ctx, int packings,
                   sys::FunctionRef<void(Ctx&, int packing)> forward, Weights weights = Weights::now);

// Refuses a step whose passes take more than so many bytes, which could not even be planned.
[[noreturn]] void fail_larger(int64_t bytes);

}  // namespace braid
