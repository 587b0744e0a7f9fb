#include "data/goldfish.h"

#include <algorithm>

#include "data/shuffle.h"

namespace braid::data {

bool Goldfish::drops(std::span<const int32_t> tokens, int64_t position) const {
  if (k <= 0 || tokens.empty()) return false;
  if (by_position) return mix(seed, static_cast<uint64_t>(position)) % static_cast<uint64_t>(k) == 0;
  uint64_t hash = seed;
  for (const int32_t id : tokens.last(std::min(tokens.size(), static_cast<size_t>(window)))) {
    hash = mix(hash, static_cast<uint64_t>(id) + 1);
  }
  return hash % static_cast<uint64_t>(k) == 0;
}

}  // namespace braid::data
