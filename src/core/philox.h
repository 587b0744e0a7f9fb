// Counter-based randomness (Philox 4x32-10, Salmon et al. 2011, through Random123): a number is a function of a seed
// and of its use, so that resume, sharding, threads and recomputation change nothing.
#pragma once
#include <Random123/philox.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace braid {

struct RandomKey {
  uint64_t seed = 0;
  uint32_t stream = 0;  // what the numbers are for: an op, a tensor, a sampler
};

inline std::array<uint32_t, 4> philox(const RandomKey& key, uint64_t index, uint32_t more = 0) {
  const r123::Philox4x32::ctr_type counter = {
      {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), key.stream, more}};
  const r123::Philox4x32::key_type k = {{static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)}};
  const auto r = r123::Philox4x32()(counter, k);
  return {r[0], r[1], r[2], r[3]};
}

// In (0, 1): 24 bits, never an end point.
inline float uniform(uint32_t bits) { return (static_cast<float>(bits >> 8) + 0.5f) * 0x1p-24f; }

// Four standard normal numbers (Box-Muller).
inline std::array<float, 4> normal4(const RandomKey& key, uint64_t index) {
  const auto r = philox(key, index);
  std::array<float, 4> out{};
  for (size_t i = 0; i < 4; i += 2) {
    const float radius = std::sqrt(-2.0f * std::log(uniform(r[i])));
    const float angle = 2.0f * std::numbers::pi_v<float> * uniform(r[i + 1]);
    out[i] = radius * std::cos(angle);
    out[i + 1] = radius * std::sin(angle);
  }
  return out;
}

}  // namespace braid
