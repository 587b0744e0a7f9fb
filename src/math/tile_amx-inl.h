// The walk over tiles of one strip (tile_strip.h), compiled over the AMX instructions and over software tiles. The
// includer defines BRAID_TILE_FN (attributes), BRAID_TILE_CONFIGURE and BRAID_TILE_{ZERO,LOAD,STORE,DOT}, whose tile
// numbers must be literals.
//
// Tiles 0-3 are sums of 2 x 2 blocks (rows of w by rows of x), 4 and 5 rows of w, 6 and 7 packed rows of x. Whole
// blocks have 16 rows of x; the last may have fewer, and narrower tiles: one row of x is read as 64 bytes per step, not
// as 1,024. Sums are kept in memory between chunks, which changes no bit.

namespace braid::tiles {
namespace {

constexpr int64_t kTileRows = 16, kStepPairs = 16;

// The packed tiles of a block whose tiles have `width` rows of x, at the chunk's first step.
inline const uint16_t* packed_at(const Strip& s, int64_t block, int64_t width) {
  return s.packed + block * s.depth_steps * kStepPairs * kTileRows * 2 + s.first_step * kStepPairs * width * 2;
}

BRAID_TILE_FN void pair_of_blocks(const Strip& s, int64_t block) {
  const int64_t sum_bytes = s.sum_stride * 4, w_bytes = s.w_stride * 2, tile = kStepPairs * kTileRows * 2;
  float* upper = s.sums + block * kTileRows;
  float* lower = upper + kTileRows * s.sum_stride;
  const uint16_t *w = s.w, *x = packed_at(s, block, kTileRows);
  if (s.add) {
    BRAID_TILE_LOAD(0, upper, sum_bytes);
    BRAID_TILE_LOAD(1, upper + kTileRows, sum_bytes);
    BRAID_TILE_LOAD(2, lower, sum_bytes);
    BRAID_TILE_LOAD(3, lower + kTileRows, sum_bytes);
  } else {
    BRAID_TILE_ZERO(0);
    BRAID_TILE_ZERO(1);
    BRAID_TILE_ZERO(2);
    BRAID_TILE_ZERO(3);
  }
  for (int64_t k = 0; k < s.steps; ++k, w += 32, x += tile) {
    BRAID_TILE_LOAD(4, w, w_bytes);
    BRAID_TILE_LOAD(6, x, 64);
    BRAID_TILE_LOAD(7, x + s.depth_steps * tile, 64);
    BRAID_TILE_LOAD(5, w + kTileRows * s.w_stride, w_bytes);
    BRAID_TILE_DOT(0, 4, 6);
    BRAID_TILE_DOT(1, 4, 7);
    BRAID_TILE_DOT(2, 5, 6);
    BRAID_TILE_DOT(3, 5, 7);
  }
  BRAID_TILE_STORE(0, upper, sum_bytes);
  BRAID_TILE_STORE(1, upper + kTileRows, sum_bytes);
  BRAID_TILE_STORE(2, lower, sum_bytes);
  BRAID_TILE_STORE(3, lower + kTileRows, sum_bytes);
}

// The lines of a step of the strip below. Rows of w are far apart, which hardware does not detect as a stream.
inline void fetch_below(const Strip& s, const uint16_t* w) {
  for (int64_t r = 0; r < 2 * kTileRows; ++r) __builtin_prefetch(w + s.ahead + r * s.w_stride);
}

BRAID_TILE_FN void one_block(const Strip& s, int64_t block, int64_t width) {
  const int64_t sum_bytes = s.sum_stride * 4, w_bytes = s.w_stride * 2, tile = kStepPairs * width * 2;
  float* upper = s.sums + block * kTileRows;
  float* lower = upper + kTileRows * s.sum_stride;
  const uint16_t *w = s.w, *x = packed_at(s, block, width);
  if (s.add) {
    BRAID_TILE_LOAD(0, upper, sum_bytes);
    BRAID_TILE_LOAD(2, lower, sum_bytes);
  } else {
    BRAID_TILE_ZERO(0);
    BRAID_TILE_ZERO(2);
  }
  for (int64_t k = 0; k < s.steps; ++k, w += 32, x += tile) {
    if (s.ahead) fetch_below(s, w);
    BRAID_TILE_LOAD(4, w, w_bytes);
    BRAID_TILE_LOAD(6, x, width * 4);
    BRAID_TILE_LOAD(5, w + kTileRows * s.w_stride, w_bytes);
    BRAID_TILE_DOT(0, 4, 6);
    BRAID_TILE_DOT(2, 5, 6);
  }
  BRAID_TILE_STORE(0, upper, sum_bytes);
  BRAID_TILE_STORE(2, lower, sum_bytes);
}

BRAID_TILE_FN void configure(const Strip& s, int64_t width) {
  if (*s.width == width) return;
  BRAID_TILE_CONFIGURE(width);
  *s.width = width;
}

BRAID_TILE_FN void strip(const Strip& s) {
  const int64_t whole = s.rows / kTileRows, rest = s.rows % kTileRows;
  int64_t block = 0;
  if (whole > 0) configure(s, kTileRows);
  for (; block + 2 <= whole; block += 2) pair_of_blocks(s, block);
  if (block < whole) one_block(s, block, kTileRows);
  if (rest > 0) {
    configure(s, rest);
    one_block(s, whole, rest);
  }
}

}  // namespace
}  // namespace braid::tiles
