// Grown by `braid repro spmm --tune` on an AMD Zen 3 with AVX2, one thread, 256 samples of 32 graphs.
#include "sparse/tree.h"

namespace braid::sparse {

std::span<const Node> built_in_tree() {
  static constexpr Node kTree[] = {
      {.feature = 3, .limit = 1.414, .below = 1, .above = 8},     // x_mib
      {.feature = 2, .limit = 5.657, .below = 2, .above = 3},     // width
      {.way = 0},                                                 // sr
      {.feature = 2, .limit = 45.25, .below = 4, .above = 5},     // width
      {.way = 2},                                                 // sr_past
      {.feature = 3, .limit = 0.7071, .below = 6, .above = 7},    // x_mib
      {.way = 0},                                                 // sr
      {.way = 1},                                                 // sr_ahead
      {.feature = 1, .limit = 0.02628, .below = 9, .above = 10},  // spread
      {.way = 2},                                                 // sr_past
      {.way = 3},                                                 // sr_ahead_past
  };
  return kTree;
}

}  // namespace braid::sparse
