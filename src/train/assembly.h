// The whole tensors of a model from what its ranks hold of them, in any division: parts of tensors, or some of the
// tensors. Each rank says what it holds, and the first one takes every part from the first rank that has it.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "comm/group.h"
#include "models/master_weights.h"

namespace braid::train {

// `array` has what this rank holds of the tensors `held`, at their offsets; `whole` are those of the model
// (MasterTensor::number). The whole array on the first rank; nothing elsewhere.
std::vector<float> assemble_tensors(comm::Group& world, std::span<const models::MasterTensor> held,
                                    std::span<const float> array, const models::MasterWeights& whole);

// Of the tensors that this rank holds: whether it is the first of the ranks that hold the same part. All ranks call it.
std::vector<uint8_t> first_holders(comm::Group& world, std::span<const models::MasterTensor> held);

}  // namespace braid::train
