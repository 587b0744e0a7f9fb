// Requests to the walk over tiles, whose main one is a chunk along k of 32 rows of w against all rows of packed
// activations. Plain data, so that files compiled for tiles may include it.
#pragma once
#include <cstdint>

namespace braid::tiles {

// Codes of NVFP4 to decode to BF16, times 2^-112: a chunk of up to 32 rows. 128 values of a row go to four steps of
// tiles in quarters: out[4 g + i][r][lane] is value 128 g + 4 lane + i of row r, zero beyond the values, so that one
// shift brings 32 codes to where a table is looked up. The 32 rows below are prefetched.
struct Decode {
  const uint8_t *codes = nullptr, *scales = nullptr;  // of the chunk's first value in the first row
  int64_t codes_stride = 0, scales_stride = 0;        // bytes from row to row
  int64_t rows = 0, values = 0;                       // values: a multiple of 16
  uint16_t* out = nullptr;                            // [steps, 32, 32]
};

struct Strip {
  const uint16_t* w = nullptr;       // 32 rows of 32 BF16 values for each step
  int64_t w_stride = 0, w_step = 0;  // elements from row to row, from step to step
  int64_t steps = 0;
  const uint16_t* packed = nullptr;  // of the chunk: tiles of the first 16 rows of x
  int64_t depth_steps = 0;           // of all chunks: the distance of two blocks of rows
  int64_t first_step = 0;            // of this chunk
  int64_t rows = 0;                  // of x
  float* sums = nullptr;             // [blocks of 16 rows of x][32, 16]: the result, each block transposed
  bool add = false;                  // to the sums of the chunks before
  int64_t ahead = 0;                 // elements from w to the lines to prefetch, of the strip below; 0: none
  int64_t* widths = nullptr;         // what tiles are configured for (tile_config.h); -1: nothing yet
};

// Up to 16 rows of x as tiles: out[s][pair p][row r][2] = value 32 s + 2 p + {0, 1} of row r, zeros beyond the depth.
struct Pack {
  const uint16_t* row[16] = {};  // BF16
  int64_t rows = 0, depth = 0;
  bool codes = false;     // for weights in codes: 2^64 times as large
  bool quarters = false;  // in the order of Decode
  uint16_t* out = nullptr;
};

// y[m, n] = factor * sums[m / 16][n, m % 16] for up to 32 columns n and all rows m.
struct Result {
  const float* sums = nullptr;
  int64_t rows = 0, cols = 0;
  float factor = 1;
  float* f32 = nullptr;  // one of the two, at the first column
  uint16_t* bf16 = nullptr;
  int64_t y_stride = 0;  // elements
};

// One implementation: with the instructions (only where sys::machine().amx), or in software.
struct Walk {
  void (*strip)(const Strip&);
  void (*release)();  // after the last strip of a thread
  void (*decode)(const Decode&);
  void (*fp8)(const uint8_t* codes, int64_t n, uint16_t* out);  // a row, n <= 512, times 2^-112
  void (*pack)(const Pack&);
  void (*result)(const Result&);
};

}  // namespace braid::tiles
