// The activations of a training step from a config alone: what every block saves for backward, in bytes per token, by
// three accounts.
//   braid     what this engine saves: the residual stream in FP32, product operands and the activations between them in
//             the step's types; no scores, no chunk states, no copies of routed tokens (memory_test.cc checks the
//             arena against it, within 2%)
//   common    two bytes per element, as an implementation with flash attention, RMSNorm and neither dropout nor biases
//             keeps
//   classic   the transformer of arXiv 2205.05198 with stored softmax and dropout masks
// docs/internals/train.md, Memory of activations, has the formulas of the last two.
// Selective recomputation frees what is `cheap`; full retains only a block's input.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "core/step_plan.h"
#include "models/config.h"

namespace braid::plan {

// Bytes per element.
struct ElementBytes {
  double stream = 4, product = 4, activations = 4;

  static ElementBytes of(DType products) {
    const auto b = static_cast<double>(size_of(products));
    return {.product = b, .activations = b};
  }
};

// Ranks that share a layer: `tensor` of them split heads, widths and experts; with `sequence` they split the tokens of
// all the rest as well.
struct Cut {
  int64_t tensor = 1;
  bool sequence = false;
};

struct Saved {
  const char* what;
  double bytes = 0;    // per token
  bool split = false;  // by tensor parallelism; the rest only by sequence parallelism
  bool cheap = false;
};

std::vector<Saved> braid_saves(const models::PartSpec& part, const models::Config& config, const ElementBytes& bytes);
std::vector<Saved> common_saves(const models::PartSpec& part, const models::Config& config);
// How often a step of training passes layer `i` and saves what gradients need: more than once in a loop.
int64_t saving_passes(const models::Config& config, size_t i);
// Empty for other blocks than attention and MLP. `length`: of a sequence.
std::vector<Saved> classic_saves(const models::PartSpec& part, const models::Config& config, int64_t length);

// Bytes per token and rank. A budget (`fit`) has no formula: it counts as `none`.
double bytes_per_token(const std::vector<Saved>& saved, Recompute::Kind recompute, const Cut& cut = {});
// Of all blocks by their letter, on one rank.
std::map<char, double> saved_by_letter(const models::Config& config, const ElementBytes& bytes,
                                       Recompute::Kind recompute);

// The shapes of 2205.05198: GPT with stored softmax, sequences of 2,048, tensor parallelism over 8.
struct PaperShape {
  const char* name;
  int64_t hidden, heads, layers;
};
std::span<const PaperShape> paper_shapes();
inline constexpr int64_t kPaperLength = 2048;
models::Config config_of(const PaperShape& shape);

// Of one classic transformer layer; full keeps the input of the layer and recomputes both its blocks.
double classic_layer_bytes(const models::Config& config, int64_t length, Recompute::Kind recompute, const Cut& cut);

// Besides the blocks: ids, targets, weights and losses of tokens, the input of the final norm, and the gradient, which
// the loss computes at once.
std::vector<Saved> braid_saves_outside(const models::Config& config, const ElementBytes& bytes);

}  // namespace braid::plan
