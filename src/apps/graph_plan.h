// What braid train --dry-run prints with objective = "graph": the recipe, the graph and the parameters.
#pragma once
#include "train/recipe.h"

namespace braid::apps {

void print_graph_plan(const train::Recipe& recipe, bool json);

}  // namespace braid::apps
