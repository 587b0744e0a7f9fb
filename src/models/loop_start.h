// The random state that a loop of layers begins with (models/config.h, LoopSpec): a function of a key and a position,
// so that it depends neither on the pass nor on the batch that a token is read in.
#pragma once
#include <cstdint>
#include <span>

#include "core/philox.h"
#include "models/config.h"

namespace braid::models {

// Of the token at `position`: normal with LoopSpec::start_std, truncated at three standard deviations.
void loop_start(const LoopSpec& spec, const RandomKey& key, int64_t position, std::span<float> state);

}  // namespace braid::models
