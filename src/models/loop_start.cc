#include "models/loop_start.h"

#include <algorithm>
#include <cmath>

namespace braid::models {

// The first of four normal numbers within the bounds; none is about once in 2e10 times.
void loop_start(const LoopSpec& spec, const RandomKey& key, int64_t position, std::span<float> state) {
  constexpr float kBound = 3;
  const auto first = static_cast<uint64_t>(position) * state.size();
  for (size_t d = 0; d < state.size(); ++d) {
    const auto drawn = normal4(key, first + d);
    const auto* inside = std::find_if(drawn.begin(), drawn.end(), [](float z) { return std::abs(z) <= kBound; });
    state[d] = spec.start_std * (inside == drawn.end() ? 0 : *inside);
  }
}

}  // namespace braid::models
