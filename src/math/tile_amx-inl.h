// The walk over tiles of one strip (tile_strip.h), compiled over the AMX instructions and over software tiles. The
// includer defines BRAID_TILE_FN (attributes) and BRAID_TILE_{ZERO,LOAD,STORE,DOT}, whose tile numbers must be
// literals.
//
// Tiles 0-3 are sums of 2 x 2 blocks (rows of w by rows of x), 4 and 5 rows of w, 6 and 7 packed rows of x. Along k
// the strip is cut in chunks of 512: 32 KiB of w stay in L1 while the packed rows stream by; sums wait in memory
// between chunks, which changes no bit.

namespace braid::tiles {
namespace {

constexpr int64_t kChunk = 16;          // steps
constexpr int64_t kTileElements = 512;  // BF16 values of a packed tile
constexpr int64_t kTileRows = 16;

struct Operand {
  const uint16_t* w;
  int64_t stride;  // bytes
};

inline Operand operand_at(const Strip& s, int64_t step) {
  return step < s.steps ? Operand{s.w + step * 32, s.w_stride * 2} : Operand{s.tail, 64};
}

BRAID_TILE_FN void pair_of_blocks(const Strip& s, int64_t block, int64_t begin, int64_t end) {
  const int64_t row_bytes = s.row_blocks * 64, steps = s.steps + (s.tail ? 1 : 0);
  float* upper = s.sums + block * kTileRows;
  float* lower = upper + kTileRows * kTileRows * s.row_blocks;
  if (begin == 0) {
    BRAID_TILE_ZERO(0);
    BRAID_TILE_ZERO(1);
    BRAID_TILE_ZERO(2);
    BRAID_TILE_ZERO(3);
  } else {
    BRAID_TILE_LOAD(0, upper, row_bytes);
    BRAID_TILE_LOAD(1, upper + kTileRows, row_bytes);
    BRAID_TILE_LOAD(2, lower, row_bytes);
    BRAID_TILE_LOAD(3, lower + kTileRows, row_bytes);
  }
  for (int64_t k = begin; k < end; ++k) {
    const Operand a = operand_at(s, k);
    const uint16_t* b = s.packed + (block * steps + k) * kTileElements;
    BRAID_TILE_LOAD(4, a.w, a.stride);
    BRAID_TILE_LOAD(6, b, 64);
    BRAID_TILE_LOAD(7, b + steps * kTileElements, 64);
    BRAID_TILE_LOAD(5, a.w + kTileRows * a.stride / 2, a.stride);
    BRAID_TILE_DOT(0, 4, 6);
    BRAID_TILE_DOT(1, 4, 7);
    BRAID_TILE_DOT(2, 5, 6);
    BRAID_TILE_DOT(3, 5, 7);
  }
  BRAID_TILE_STORE(0, upper, row_bytes);
  BRAID_TILE_STORE(1, upper + kTileRows, row_bytes);
  BRAID_TILE_STORE(2, lower, row_bytes);
  BRAID_TILE_STORE(3, lower + kTileRows, row_bytes);
}

BRAID_TILE_FN void one_block(const Strip& s, int64_t block, int64_t begin, int64_t end) {
  const int64_t row_bytes = s.row_blocks * 64, steps = s.steps + (s.tail ? 1 : 0);
  float* upper = s.sums + block * kTileRows;
  float* lower = upper + kTileRows * kTileRows * s.row_blocks;
  if (begin == 0) {
    BRAID_TILE_ZERO(0);
    BRAID_TILE_ZERO(2);
  } else {
    BRAID_TILE_LOAD(0, upper, row_bytes);
    BRAID_TILE_LOAD(2, lower, row_bytes);
  }
  for (int64_t k = begin; k < end; ++k) {
    const Operand a = operand_at(s, k);
    BRAID_TILE_LOAD(4, a.w, a.stride);
    BRAID_TILE_LOAD(6, s.packed + (block * steps + k) * kTileElements, 64);
    BRAID_TILE_LOAD(5, a.w + kTileRows * a.stride / 2, a.stride);
    BRAID_TILE_DOT(0, 4, 6);
    BRAID_TILE_DOT(2, 5, 6);
  }
  BRAID_TILE_STORE(0, upper, row_bytes);
  BRAID_TILE_STORE(2, lower, row_bytes);
}

BRAID_TILE_FN void strip(const Strip& s) {
  const int64_t steps = s.steps + (s.tail ? 1 : 0);
  for (int64_t begin = 0; begin < steps; begin += kChunk) {
    const int64_t end = begin + kChunk < steps ? begin + kChunk : steps;
    int64_t block = 0;
    for (; block + 2 <= s.row_blocks; block += 2) pair_of_blocks(s, block, begin, end);
    if (block < s.row_blocks) one_block(s, block, begin, end);
  }
}

}  // namespace
}  // namespace braid::tiles
