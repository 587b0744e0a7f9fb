// A model in training without its numbers: weights and gradients lie at an address that nobody reads. For dry passes
// (Ctx::dry) over a config of any size.
#pragma once
#include "models/model.h"

namespace braid::models {

Model empty_model(const Config& config, DType products);

}  // namespace braid::models
