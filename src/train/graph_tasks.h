// The objectives of objective = "graph", by graph.task, on one rank.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "train/objective.h"
#include "train/recipe.h"

namespace braid::train {

// The recipe outlives it.
std::unique_ptr<Objective> graph_objective(const Recipe& recipe);

// Bytes of the passes of a step, where it is over one whole graph on one rank and that is small enough to count.
std::optional<int64_t> pass_memory(const Recipe& recipe, Objective& objective);
// Error where weights, moments and the passes of a step over a whole graph do not fit into free memory.
void need_graph_memory(const Recipe& recipe, Objective& objective);

// A value of what braid train --dry-run --json prints besides the parameters.
struct GraphSize {
  const char* name;
  int64_t value;
};
std::vector<GraphSize> sizes_of(const Objective& objective);  // that graph_objective made

}  // namespace braid::train
