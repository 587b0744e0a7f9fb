// What the walk over tiles is asked for: 32 rows of w against all rows of packed activations. Plain data, so that files
// compiled for tiles may include it.
#pragma once
#include <cstdint>

namespace braid::tiles {

struct Strip {
  const uint16_t* w = nullptr;     // [32, depth] BF16
  int64_t w_stride = 0;            // elements
  int64_t steps = 0;               // whole steps of 32 along k that can be read from w
  const uint16_t* tail = nullptr;  // [32, 32], the step after those, zeros beyond the depth; or null
  const uint16_t* packed = nullptr;
  int64_t row_blocks = 0;  // of 16 rows of x
  float* sums = nullptr;   // [32, 16 * row_blocks]: the transposed result
};

}  // namespace braid::tiles
