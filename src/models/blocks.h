// From the description of a block to the block, its weights taken from a source.
#pragma once
#include <memory>

#include "models/config.h"
#include "nn/block.h"

namespace braid::models {

std::unique_ptr<nn::Block> build_block(const BlockSpec& spec, const nn::BlockSource& source,
                                       const std::shared_ptr<nn::RopeTable>& rope);

}  // namespace braid::models
