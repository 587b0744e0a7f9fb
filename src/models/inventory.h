// The tensors that a config implies, without any files: names, roles and shapes in the order a model requests them. For
// counting parameters and for writing random weights of any size.
#pragma once
#include <vector>

#include "models/config.h"

namespace braid::models {

using TensorSpec = nn::ParamRequest;

std::vector<TensorSpec> inventory(const Config& config);

}  // namespace braid::models
