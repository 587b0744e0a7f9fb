#include "apps/rank_memory.h"

#include "layout/cost.h"

namespace braid::apps {

bool divides_layers(const train::ParallelRecipe& parallel) { return parallel.divides_model() || parallel.cp > 1; }

std::vector<std::pair<const char*, double>> rank_memory(const train::Recipe& recipe, const models::Config& config,
                                                        int64_t ranks, int64_t rows, int64_t length) {
  const Recompute::Kind kind = parse_recompute(recipe.recompute).kind;
  const layout::Task task{.ranks = ranks, .batch = rows, .length = length, .bf16 = recipe.dtype == "bf16"};
  const layout::Layout divided{.parallel = recipe.parallel,
                               .parts = recipe.accumulate,
                               .recompute = kind == Recompute::Kind::fit ? Recompute::Kind::none : kind};
  const layout::Model model(config, recipe, length);
  // Of any machine: memory depends on none.
  const layout::Memory m = memory_of(work_of(model, layout::machine_presets()[0], task, divided), task);
  const double mean = recipe.ema_decay <= 0 ? 0 : recipe.parallel.zero < 3 ? m.masters : m.moments / 2;
  return {{"master weights, FP32", m.masters},
          {"working copy, BF16", m.working},
          {"gradients, FP32", m.gradients},
          {"moments, FP32", m.moments},
          {"running mean, FP32", mean},
          {"activations", m.activations},
          {"workspace of a layer's passes", m.passes}};
}

}  // namespace braid::apps
