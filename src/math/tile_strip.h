// Requests to the walk over tiles, whose main one is a chunk along k of 32 rows of w against all rows of packed
// activations. Plain data, so that files compiled for tiles may include it.
#pragma once
#include <cstdint>

namespace braid::tiles {

// In which order the values of a row of w, and of x, are multiplied. Codes of NVFP4 are looked up 32 at a time, as one
// shift of 64 bytes brings them to the lower bits of words, so that 128 values go to four steps of tiles: step i, lane
// 4 b + j is value 16 b + first(i, j), of the block of 16 with scale b.
enum class Order : uint8_t {
  plain,
  nvfp4,       // ModelOpt's rows of codes and rows of scales: first(i, j) = 4 j + i
  ggml_nvfp4,  // blocks of GGUF, 4 scales and 64 codes in 36 bytes: first(i, j) = 2 j + i / 2 + 8 (i % 2)
};

// Codes of NVFP4 to decode to BF16, times 2^-112: a chunk of up to 32 rows, out[step][r][lane]; zero beyond the values.
// The 32 rows below are prefetched.
struct Decode {
  Order order = Order::nvfp4;
  const uint8_t *codes = nullptr, *scales = nullptr;  // of the chunk's first value in the first row; blocks: no scales
  int64_t codes_stride = 0, scales_stride = 0;        // bytes from row to row
  int64_t rows = 0, values = 0;                       // values: a multiple of 16, of blocks of 64
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

// Up to 16 rows of x as tiles: out[s][pair p][row r][2] = value 32 s + 2 p + {0, 1} of row r, in its order, zeros
// beyond the depth.
struct Pack {
  const uint16_t* row[16] = {};  // BF16
  int64_t rows = 0, depth = 0;
  bool codes = false;  // for weights in codes: 2^64 times as large
  Order order = Order::plain;
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
