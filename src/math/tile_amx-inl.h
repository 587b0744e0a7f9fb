// The walk over tiles of one strip (tile_strip.h), compiled over the AMX instructions and over software tiles. The
// includer defines BRAID_TILE_FN (attributes), BRAID_TILE_CONFIGURE and BRAID_TILE_{ZERO,LOAD,STORE,DOT}, whose tile
// numbers must be literals.
//
// Tiles 0-3 are sums of 2 x 2 blocks (rows of w by rows of x), 4 and 5 rows of w, 6 and 7 packed rows of x. Whole
// blocks have 16 rows of x; the last may have fewer, and narrower tiles: one row of x is read as 64 bytes per step, not
// as 1,024. Blocks go in pairs, since two sums alone would wait for their last products. Sums are kept in memory
// between chunks, which changes no bit.

namespace braid::tiles {
namespace {

constexpr int64_t kTileRows = 16, kStepPairs = 16, kSums = 16 * 16;

// The packed tiles of a block whose tiles have `width` rows of x, at the chunk's first step.
inline const uint16_t* packed_at(const Strip& s, int64_t block, int64_t width) {
  return s.packed + block * s.depth_steps * kStepPairs * kTileRows * 2 + s.first_step * kStepPairs * width * 2;
}

// Two blocks, of which the second has `width` rows.
BRAID_TILE_FN void pair_of_blocks(const Strip& s, int64_t block, int64_t width) {
  const int64_t w_bytes = s.w_stride * 2;
  float* sums = s.sums + block * 2 * kSums;
  const uint16_t *w = s.w, *x = packed_at(s, block, kTileRows), *second = packed_at(s, block + 1, width);
  if (s.add) {
    BRAID_TILE_LOAD(0, sums, 64);
    BRAID_TILE_LOAD(1, sums + 2 * kSums, 64);
    BRAID_TILE_LOAD(2, sums + kSums, 64);
    BRAID_TILE_LOAD(3, sums + 3 * kSums, 64);
  } else {
    BRAID_TILE_ZERO(0);
    BRAID_TILE_ZERO(1);
    BRAID_TILE_ZERO(2);
    BRAID_TILE_ZERO(3);
  }
  for (int64_t k = 0; k < s.steps;
       ++k, w += s.w_step, x += kStepPairs * kTileRows * 2, second += kStepPairs * width * 2) {
    BRAID_TILE_LOAD(4, w, w_bytes);
    BRAID_TILE_LOAD(6, x, 64);
    BRAID_TILE_LOAD(7, second, width * 4);
    BRAID_TILE_LOAD(5, w + kTileRows * s.w_stride, w_bytes);
    BRAID_TILE_DOT(0, 4, 6);
    BRAID_TILE_DOT(1, 4, 7);
    BRAID_TILE_DOT(2, 5, 6);
    BRAID_TILE_DOT(3, 5, 7);
  }
  BRAID_TILE_STORE(0, sums, 64);
  BRAID_TILE_STORE(1, sums + 2 * kSums, 64);
  BRAID_TILE_STORE(2, sums + kSums, 64);
  BRAID_TILE_STORE(3, sums + 3 * kSums, 64);
}

// The lines of a step of the strip below. Rows of w are far apart, which hardware does not detect as a stream.
inline void fetch_below(const Strip& s, const uint16_t* w) {
  for (int64_t r = 0; r < 2 * kTileRows; ++r) __builtin_prefetch(w + s.ahead + r * s.w_stride);
}

BRAID_TILE_FN void one_block(const Strip& s, int64_t block, int64_t width) {
  const int64_t w_bytes = s.w_stride * 2, tile = kStepPairs * width * 2;
  float* sums = s.sums + block * 2 * kSums;
  const uint16_t *w = s.w, *x = packed_at(s, block, width);
  if (s.add) {
    BRAID_TILE_LOAD(0, sums, 64);
    BRAID_TILE_LOAD(2, sums + kSums, 64);
  } else {
    BRAID_TILE_ZERO(0);
    BRAID_TILE_ZERO(2);
  }
  for (int64_t k = 0; k < s.steps; ++k, w += s.w_step, x += tile) {
    if (s.ahead) fetch_below(s, w);
    BRAID_TILE_LOAD(4, w, w_bytes);
    BRAID_TILE_LOAD(6, x, width * 4);
    BRAID_TILE_LOAD(5, w + kTileRows * s.w_stride, w_bytes);
    BRAID_TILE_DOT(0, 4, 6);
    BRAID_TILE_DOT(2, 5, 6);
  }
  BRAID_TILE_STORE(0, sums, 64);
  BRAID_TILE_STORE(2, sums + kSums, 64);
}

BRAID_TILE_FN void configure(const Strip& s, int64_t first, int64_t second) {
  const int64_t widths = 32 * first + second;
  if (*s.widths == widths) return;
  BRAID_TILE_CONFIGURE(first, second);
  *s.widths = widths;
}

BRAID_TILE_FN void strip(const Strip& s) {
  const int64_t blocks = (s.rows + kTileRows - 1) / kTileRows, last = s.rows - (blocks - 1) * kTileRows;
  int64_t block = 0;
  for (; block + 2 <= blocks; block += 2) {
    const int64_t width = block + 2 < blocks ? kTileRows : last;
    configure(s, kTileRows, width);
    pair_of_blocks(s, block, width);
  }
  if (block < blocks) {
    configure(s, last, last);
    one_block(s, block, last);
  }
}

}  // namespace
}  // namespace braid::tiles
