// Memory of a rank whose mesh divides the model, by the account that plans layouts (layout/cost.h): a rank has part of
// a layer's matrices, or of its tokens, or some of the layers.
#pragma once
#include <utility>
#include <vector>

#include "models/config.h"
#include "train/recipe.h"

namespace braid::apps {

bool divides_layers(const train::ParallelRecipe& parallel);

// By kind, of the stage that needs most, in a step of `rows` rows. With memory.recompute = fit, as if nothing were
// recomputed.
std::vector<std::pair<const char*, double>> rank_memory(const train::Recipe& recipe, const models::Config& config,
                                                        int64_t ranks, int64_t rows, int64_t length);

}  // namespace braid::apps
