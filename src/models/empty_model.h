// A model in training without its data: weights and gradients are at an address that is never read. For dry passes
// (Ctx::dry) over a config of any size.
#pragma once
#include "models/model.h"

namespace braid::models {

Model empty_model(const Config& config, DType products);

}  // namespace braid::models
