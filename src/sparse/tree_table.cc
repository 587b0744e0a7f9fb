// Grown by `braid repro spmm --tree` on an AMD Zen 3 with AVX2, one thread.
#include "sparse/tree.h"

namespace braid::sparse {

std::span<const Node> built_in_tree() {
  static constexpr Node kTree[] = {
      {.way = 1},  // sr_ahead
  };
  return kTree;
}

}  // namespace braid::sparse
