// One number for all weights: two runs that print the same one hold the same bits. Not for security.
#pragma once
#include <cstdint>
#include <span>

namespace braid::train {

// Parts of a fixed size are hashed in parallel and combined in order: the same on any number of threads.
uint64_t weight_hash(std::span<const float> values, int threads);

}  // namespace braid::train
