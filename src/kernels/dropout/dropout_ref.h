// The formulas of dropout.h.
#pragma once
#include <cmath>

#include "core/philox.h"
#include "kernels/dropout/dropout.h"

namespace braid {

// A draw below this is dropped.
inline uint32_t dropout_threshold(float rate) {
  return static_cast<uint32_t>(std::llround(static_cast<double>(rate) * 0x1p32));
}

inline uint64_t dropout_fold(uint64_t key, uint64_t index, uint32_t stream) {
  const auto words = philox({.seed = key, .stream = stream}, index);
  return words[0] | static_cast<uint64_t>(words[1]) << 32;
}

// The key of one sample's positions and channels.
inline uint64_t dropout_sample_key(const DropoutKey& key, int64_t sample_id) {
  const uint64_t call = dropout_fold(dropout_fold(key.seed, key.step, key.layer), 0, key.op);
  return dropout_fold(call, static_cast<uint64_t>(sample_id), 0);
}

inline bool dropout_keeps(uint64_t sample_key, int64_t position, int64_t channel, uint32_t threshold) {
  const auto counter = static_cast<uint64_t>(channel / 64 * 16 + channel % 16);
  const auto words = philox({.seed = sample_key, .stream = static_cast<uint32_t>(position)}, counter);
  return words[static_cast<size_t>(channel / 16 % 4)] >= threshold;
}

}  // namespace braid
