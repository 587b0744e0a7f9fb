// y[m, n] = global * sum_k x[m, k] * w[n, k] with a weight of any format: the classes of products in answers behind one
// interface, which linear and experts drive. A driver packs the rows of x once, where the engine does, and gives tasks
// of rows of w to threads; a result depends on x's row and w's row alone, however both are cut. Training multiplies
// packed operands instead (math/packed.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "core/weight.h"
#include "math/thresholds.h"

namespace braid {

// x [M, K], w [N, K], y [M, N] F32 or BF16; rows contiguous.
struct ProductCall {
  View x{};                           // of the type of the engine
  const std::byte* packed = nullptr;  // the same rows, where the engine packs
  Weight w{};
  MutView y{};
  std::span<std::byte> workspace{};
  const Thresholds* limits = nullptr;
};

struct ProductEngine {
  DType x = DType::bf16;                                   // of activations
  int64_t rows_max = std::numeric_limits<int64_t>::max();  // of a call
  int64_t block_rows = 1;                                  // packed together; a call starts at a multiple
  // Null: multiplies w on this machine.
  const char* (*refusal)(const Weight& w) = nullptr;
  // Of a packed row of x, for any row; null: x is read as it is.
  int64_t (*row_bytes)(const Weight& w) = nullptr;
  // Whether rows that were packed for one suit the other.
  bool (*same_packing)(const Weight& a, const Weight& b) = nullptr;
  // Blocks [begin, end) of x [M, K], M <= rows_max, to the place of block 0.
  void (*pack)(const View& x, const Weight& w, int64_t begin, int64_t end, std::byte* packed) = nullptr;
  int64_t (*workspace)(const Weight& w, int64_t rows) = nullptr;  // of a call, in bytes
  void (*product)(const ProductCall& p) = nullptr;                // on the calling thread
  // Rows of w of a task among `cols`, for so many rows of x.
  int64_t (*task_cols)(int64_t rows, int64_t cols, int threads, const Thresholds& limits) = nullptr;
};

extern const ProductEngine kPanelF32, kPanelBf16, kPanelDot;  // math/panel.h
extern const ProductEngine kTiles, kSoftTiles;                // math/tile.h
extern const ProductEngine kCodesA16;                         // math/codes_dot.h
extern const ProductEngine kCodesA8;                          // math/codes_a8.h

}  // namespace braid
