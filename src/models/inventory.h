// The tensors that a config implies, without any files: names, roles and shapes in the order a model requests them. For
// counting parameters and for writing random weights of any size.
#pragma once
#include <vector>

#include "models/config.h"

namespace braid::models {

using TensorSpec = nn::ParamRequest;

std::vector<TensorSpec> inventory(const Config& config);
// The same as `files` spell it, where experts may be stacked.
std::vector<TensorSpec> stored_inventory(const Config& config, const nn::ParamSource& files);

}  // namespace braid::models
