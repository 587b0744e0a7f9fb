// What braid train --dry-run prints: parameters, operations, memory by kind, and the speed to expect.
#pragma once
#include "train/recipe.h"

namespace braid::apps {

// The memory is that of one of `ranks`.
void print_train_plan(const train::Recipe& recipe, int ranks, bool json);

}  // namespace braid::apps
