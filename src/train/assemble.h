// Whole arrays from ranks that have parts of a model: some layers, or parts of tensors, or both.
#pragma once
#include <span>
#include <vector>

#include "comm/group.h"
#include "models/master_weights.h"

namespace braid::train {

// `ranks`: those that have one model together. Each says which tensors it has, and what of them; of a tensor that
// several have whole, the one that counts it sends it (MasterTensor::counted). Returns the elements of `array`, one of
// those parallel to the masters, in the order of `whole` on the first rank; nothing elsewhere.
std::vector<float> assemble(comm::Group& ranks, const models::MasterWeights& masters,
                            const models::MasterWeights& whole, std::span<const float> array);

}  // namespace braid::train
