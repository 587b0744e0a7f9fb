// What packed.cc requires of an instruction set. Plain data, no containers, so that files compiled for AVX-512 or tiles
// may include it (docs/internals/cpu.md, Code for one instruction set).
#pragma once
#include <cstdint>

namespace braid::packed {

// One operand as stored in memory, element (i, k) with k along the depth: data[i * stride + k] where `along`, else
// data[k * stride + i].
struct Source {
  const void* data = nullptr;
  int64_t stride = 0;  // elements
  bool bf16 = false;   // else F32
  bool along = false;
};

// y[m, n] (+)= sum over k of a[k, m] * b[k, n] for whole tiles of y: `down` panels of a, each against `across` panels
// of b.
struct Tile {
  const void* a = nullptr;
  const void* b = nullptr;
  int64_t depth = 0;  // of the panels, so a multiple of Kernel::step
  float* y = nullptr;
  int64_t y_stride = 0;
  bool add = false;
  int64_t down = 1, across = 1;
  bool half = false;  // only the upper half of the rows of one panel of a; needs Kernel::halves
  int64_t ahead = 0;  // bytes beyond the values of b in use that are prefetched from L2 or L3; 0: none
};

// A panel is `width` values of i by the depth, zeros beyond the edges; its layout is the kernel's own.
struct Kernel {
  int64_t rows = 0, cols = 0;  // of a tile: the widths of panels of a and of b
  int64_t step = 1;            // what depths are rounded up to
  int64_t value_bytes = 4;     // of a packed value
  bool halves = false;         // whether half the rows of a tile take half the work
  // The depth up to which consecutive products that add to y are best merged into one. Splitting them at a multiple of
  // `step` changes no bit: sums continue from y as if they had stayed in their tile.
  int64_t chain = 0;
  // Panels of that width one after another, from n values of i and `depth` of k.
  using Pack = void(const Source& source, int64_t width, int64_t n, int64_t depth, void* panels);
  Pack* pack_rows = nullptr;
  Pack* pack_cols = nullptr;
  void (*tiles)(const Tile& t) = nullptr;
};

Kernel wide_f32();         // FP32 products and sums
Kernel wide_bf16();        // the same with operands rounded to BF16
Kernel dot_bf16();         // vdpbf16ps: pairs of products, FP32 sums, no subnormals
Kernel narrow_dot_bf16();  // the same bits from tiles of 8 or 4 x 32 instead of 8 x 48; prefetches nothing ahead
Kernel tile_bf16();        // tiles (AMX), as tile.h
Kernel soft_tile_bf16();   // the same in software: for tests

// The panels of the tile kernel, packed with AVX-512: every CPU with tiles has it. packed_tile.cc defines their layout.
void pack_tile_rows_avx512(const Source& source, int64_t width, int64_t n, int64_t depth, void* panels);
void pack_tile_cols_avx512(const Source& source, int64_t width, int64_t n, int64_t depth, void* panels);

}  // namespace braid::packed
