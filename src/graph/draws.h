// Draws that generated graphs and splits of their edges share.
#pragma once
#include <cstdint>

namespace braid::graph {

// In [0, n) for n < 2^32: the high half of a product, unbiased enough while n is far below 2^32.
inline int64_t below(uint32_t bits, int64_t n) {
  return static_cast<int64_t>(static_cast<uint64_t>(bits) * static_cast<uint64_t>(n) >> 32);
}

}  // namespace braid::graph
