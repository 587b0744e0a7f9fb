// The walk of the packed tile kernel over a row of tiles, compiled over the AMX instructions and over software tiles
// (tile_soft.h). The includer defines BRAID_TILE_FN (attributes) and BRAID_TILE_{ZERO,LOAD,STREAM,STORE,DOT,FETCH},
// whose tile numbers must be literals; STREAM is a LOAD that leaves L1 to other data, FETCH prefetches a line.
//
// A panel of a is [step][32][32] values, row after row; a panel of b two blocks of 16 columns, each
// [step][pair][16][2]. Tiles 0-3 are the sums of 2 x 2 blocks over the whole depth, 4 and 5 rows of a, 6 and 7 columns
// of b. A panel of a serves all panels of b in turn, so b streams by.
#include "math/packed_kernel.h"

namespace braid::packed {
namespace {

constexpr int64_t kTileValues = 512, kPanelValues = 1024;  // BF16 values of a tile, and of a step of a panel

// The lines of both blocks of b that a step reads, some way further on.
BRAID_TILE_FN inline void fetch(const uint16_t* b, int64_t b_block) {
  for (int64_t line = 0; line < kTileValues; line += 32) {
    BRAID_TILE_FETCH(b + line);
    BRAID_TILE_FETCH(b + b_block + line);
  }
}

template <bool kAhead>
BRAID_TILE_FN inline void one_tile(const uint16_t* a, const uint16_t* b, int64_t b_block, int64_t steps, float* y,
                                   int64_t row_bytes, bool add, int64_t ahead) {
  float* lower = y + 16 * row_bytes / 4;
  if (add) {
    BRAID_TILE_LOAD(0, y, row_bytes);
    BRAID_TILE_LOAD(1, y + 16, row_bytes);
    BRAID_TILE_LOAD(2, lower, row_bytes);
    BRAID_TILE_LOAD(3, lower + 16, row_bytes);
  } else {
    BRAID_TILE_ZERO(0);
    BRAID_TILE_ZERO(1);
    BRAID_TILE_ZERO(2);
    BRAID_TILE_ZERO(3);
  }
  for (int64_t k = 0; k < steps; ++k, a += kPanelValues, b += kTileValues) {
    if (kAhead) fetch(b + ahead, b_block);
    BRAID_TILE_LOAD(4, a, 64);
    BRAID_TILE_STREAM(6, b, 64);
    BRAID_TILE_STREAM(7, b + b_block, 64);
    BRAID_TILE_LOAD(5, a + kTileValues, 64);
    BRAID_TILE_DOT(0, 4, 6);
    BRAID_TILE_DOT(1, 4, 7);
    BRAID_TILE_DOT(2, 5, 6);
    BRAID_TILE_DOT(3, 5, 7);
  }
  BRAID_TILE_STORE(0, y, row_bytes);
  BRAID_TILE_STORE(1, y + 16, row_bytes);
  BRAID_TILE_STORE(2, lower, row_bytes);
  BRAID_TILE_STORE(3, lower + 16, row_bytes);
}

// The same for 16 rows of y, which need the upper tiles only.
template <bool kAhead>
BRAID_TILE_FN inline void half_tile(const uint16_t* a, const uint16_t* b, int64_t b_block, int64_t steps, float* y,
                                    int64_t row_bytes, bool add, int64_t ahead) {
  if (add) {
    BRAID_TILE_LOAD(0, y, row_bytes);
    BRAID_TILE_LOAD(1, y + 16, row_bytes);
  } else {
    BRAID_TILE_ZERO(0);
    BRAID_TILE_ZERO(1);
  }
  for (int64_t k = 0; k < steps; ++k, a += kPanelValues, b += kTileValues) {
    if (kAhead) fetch(b + ahead, b_block);
    BRAID_TILE_LOAD(4, a, 64);
    BRAID_TILE_STREAM(6, b, 64);
    BRAID_TILE_STREAM(7, b + b_block, 64);
    BRAID_TILE_DOT(0, 4, 6);
    BRAID_TILE_DOT(1, 4, 7);
  }
  BRAID_TILE_STORE(0, y, row_bytes);
  BRAID_TILE_STORE(1, y + 16, row_bytes);
}

template <bool kAhead>
BRAID_TILE_FN void walk_of(const Tile& t) {
  const int64_t steps = t.depth / 32, row_bytes = t.y_stride * 4, b_block = steps * kTileValues, ahead = t.ahead / 2;
  const auto *a = static_cast<const uint16_t*>(t.a), *b = static_cast<const uint16_t*>(t.b);
  for (int64_t m = 0; m < t.down; ++m, a += steps * kPanelValues) {
    float* y = t.y + m * 32 * t.y_stride;
    for (int64_t n = 0; n < t.across; ++n, y += 32) {
      const uint16_t* panel = b + n * steps * kPanelValues;
      if (t.half) {
        half_tile<kAhead>(a, panel, b_block, steps, y, row_bytes, t.add, ahead);
      } else {
        one_tile<kAhead>(a, panel, b_block, steps, y, row_bytes, t.add, ahead);
      }
    }
  }
}

BRAID_TILE_FN void walk(const Tile& t) {
  if (t.ahead > 0) return walk_of<true>(t);
  walk_of<false>(t);
}

}  // namespace
}  // namespace braid::packed
