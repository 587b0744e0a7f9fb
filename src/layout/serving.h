// Layouts for answers: `tp` ranks divide a model's blocks, `pp` stages its layers, and the others are replicas that
// divide the requests. Over several nodes that is tensor parallelism everywhere, or within a node with stages between
// nodes (arXiv 2511.09557, section 2): a token of one answer passes all stages in turn, so that stages do not shorten
// it, while the parts of a prompt follow one another through them.
#pragma once
#include <vector>

#include "layout/cost.h"

namespace braid::layout {

struct Answers {
  int64_t ranks = 1;
  int64_t batch = 1;                    // answers at a time, over all replicas
  int64_t prompt = 1024, answer = 256;  // tokens of each
  bool bf16_cache = true;               // of keys and values; states are FP32
};

struct ServingCost {
  train::ParallelRecipe parallel{};  // tp, pp; ep = tp: whole experts on each rank
  int64_t replicas = 1;
  double prompts = 0;             // seconds until all prompts are read
  double token = 0;               // of one token of each answer, at the mean depth
  double sums = 0;                // of token: collectives and messages between stages
  double weights = 0, cache = 0;  // bytes of a rank
  bool fits = false;

  double all(const Answers& task) const { return prompts + static_cast<double>(task.answer) * token; }
  double memory() const { return weights + cache; }
};

ServingCost serving_cost(const Model& model, const Machine& machine, const Answers& task,
                         const train::ParallelRecipe& parallel);

struct Served {
  std::vector<ServingCost> fitting{};  // fastest first
  ServingCost nearest{};               // where none fits
  int64_t legal = 0;
};
// Error when no layout is legal.
Served find_serving(const Model& model, const Machine& machine, const Answers& task);

}  // namespace braid::layout
