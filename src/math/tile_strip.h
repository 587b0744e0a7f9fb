// A request to the walk over tiles: a chunk along k of 32 rows of w against all rows of packed activations. Plain data,
// so that files compiled for tiles may include it.
#pragma once
#include <cstdint>

namespace braid::tiles {

struct Strip {
  const uint16_t* w = nullptr;  // [32, 32 * steps] BF16
  int64_t w_stride = 0;         // elements
  int64_t steps = 0;
  const uint16_t* packed = nullptr;  // of the chunk: tiles of the first 16 rows of x
  int64_t depth_steps = 0;           // of all chunks: the distance of two blocks of rows
  int64_t first_step = 0;            // of this chunk
  int64_t rows = 0;                  // of x
  float* sums = nullptr;             // [32, sum_stride]: the transposed result
  int64_t sum_stride = 0;
  bool add = false;          // to the sums of the chunks before
  int64_t ahead = 0;         // elements from w to the lines to prefetch, of the strip below; 0: none
  int64_t* width = nullptr;  // rows of x that tiles are configured for; 0: not yet
};

// One implementation: with the instructions (only where sys::machine().amx), or in software.
struct Walk {
  void (*strip)(const Strip&);
  void (*release)();  // after the last strip of a thread
  // Values of a row of codes, times 2^-112: n <= 512, for NVFP4 a multiple of 16.
  void (*nvfp4)(const uint8_t* codes, const uint8_t* scales, int64_t n, uint16_t* out);
  void (*fp8)(const uint8_t* codes, int64_t n, uint16_t* out);
};

}  // namespace braid::tiles
