// What the driver in panel.cc requires of an instruction set: one block of sums. Plain data, no containers, so that
// files compiled for AVX-512 or tiles may include it (docs/internals/cpu.md, Code for one instruction set).
//
//   sums[m, n] (+)= sum over k < depth of x[m, k] * w[n, k]
//
// Every (m, n) keeps one vector of partial sums along k, reduced at the end of the block in a tree that is the same for
// every position: the tile shape a kernel picks changes no bit. A few rows of x stay in L1 while the rows of w stream
// by from L2, prefetched during the previous block.
#pragma once
#include <cstdint>

#include "core/dtype.h"

namespace braid::panel {

struct Block {
  const void* x = nullptr;  // [rows, depth], rows x_stride elements apart
  const void* w = nullptr;  // [cols, depth], rows w_stride elements apart
  int64_t x_stride = 0, w_stride = 0;
  int64_t rows = 0, cols = 0, depth = 0;
  const void* next_w = nullptr;  // the w of the block after this one: prefetched meanwhile; may be null
  float* sums = nullptr;         // [rows, cols], rows sums_stride apart
  int64_t sums_stride = 0;
  bool add = false;  // to the sums there
};

// One or two rows of x: w is read as a stream over the whole depth, one column after another or a few at a time, in
// parts of `depth_part` whose sums are added in order, just as blocks would. The next data is prefetched meanwhile: the
// columns after these, or, where one is read at a time, what is `ahead` bytes further on.
struct Stream {
  Block block;  // depth is the whole depth
  int64_t depth_part = 0, ahead = 0;
};

struct Kernel {
  void (*run)(const Block&) = nullptr;
  void (*stream)(const Stream&) = nullptr;
  int64_t depth_max = 0;  // of a block, so that a tile of x stays in L1; part of the numerics
};

// Widening FMA, with a depth_max of kWideDepth, or the BF16 dot instruction.
inline constexpr int64_t kWideDepth = 1024;
Kernel wide_f32_f32();
Kernel wide_f32_bf16();
Kernel wide_bf16_bf16();
Kernel dot_bf16_bf16();

// The share of tile row `tile` of `tiles` in prefetching the next block: rows [first, last) of every `cols`.
struct Ahead {
  int first, last;
};
inline Ahead ahead_of(const Block& b, int64_t tile, int64_t tiles, int cols) {
  if (!b.next_w || tile >= cols) return {0, 0};
  const int each = tiles >= cols ? 1 : static_cast<int>((cols + tiles - 1) / tiles);
  const int first = static_cast<int>(tile) * each, last = first + each;
  return {first < cols ? first : cols, last < cols ? last : cols};
}

}  // namespace braid::panel
