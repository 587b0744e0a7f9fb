// Steps of 32 sources multiplied on tiles (spmm_tiles_code.h), compiled over the AMX instructions and over software
// tiles. The includer defines BRAID_TILE_FN (attributes), BRAID_TILE_{ZERO,LOAD,STORE,DOT}, whose tile numbers must be
// literals, and interleave<groups>(), which writes a step's second operand and prefetches that of two steps further.
//
// Tiles 0-3 are sums, two to a group of channels, 4 and 5 factors and what rounding left of them, 6 and 7 features.

namespace braid::spmm_tiles {
namespace {

constexpr int64_t kPairs = 2 * kTile;  // BF16 values of a tile of features

BRAID_TILE_FN inline void first_group(const uint16_t* factors, const uint16_t* x, bool remainder) {
  BRAID_TILE_LOAD(4, factors, 64);
  BRAID_TILE_LOAD(6, x, 64);
  BRAID_TILE_LOAD(7, x + kPairs, 64);
  BRAID_TILE_DOT(0, 4, 6);
  BRAID_TILE_DOT(1, 4, 7);
  if (!remainder) return;
  BRAID_TILE_LOAD(5, factors + kPlane, 64);
  BRAID_TILE_DOT(0, 5, 6);
  BRAID_TILE_DOT(1, 5, 7);
}

BRAID_TILE_FN inline void second_group(const uint16_t* x, bool remainder) {
  BRAID_TILE_LOAD(6, x + 2 * kPairs, 64);
  BRAID_TILE_LOAD(7, x + 3 * kPairs, 64);
  BRAID_TILE_DOT(2, 4, 6);
  BRAID_TILE_DOT(3, 4, 7);
  if (!remainder) return;
  BRAID_TILE_DOT(2, 5, 6);
  BRAID_TILE_DOT(3, 5, 7);
}

// What a step ahead reads: within `steps`, or of what comes after them.
inline Ahead ahead_of(const Products& p, int64_t step) {
  constexpr int64_t kAhead = 2;  // steps; README.md
  const int64_t after = step + kAhead - p.steps;
  const int32_t* source = after < 0 ? p.source + kSources * (step + kAhead) : p.source_after + kSources * after;
  return {source < p.last ? source : p.last, after < 0 ? p.x : p.x_after};
}

template <int kGroups>
BRAID_TILE_FN void sum_steps(const Products& p) {
  if (p.add) {
    BRAID_TILE_LOAD(0, p.sums, 64);
    BRAID_TILE_LOAD(1, p.sums + kTile, 64);
    if (kGroups == 2) {
      BRAID_TILE_LOAD(2, p.sums + 2 * kTile, 64);
      BRAID_TILE_LOAD(3, p.sums + 3 * kTile, 64);
    }
  } else {
    BRAID_TILE_ZERO(0);
    BRAID_TILE_ZERO(1);
    BRAID_TILE_ZERO(2);
    BRAID_TILE_ZERO(3);
  }
  const uint16_t* factors = p.factors;
  for (int64_t s = 0; s < p.steps; ++s, factors += kStep) {
    interleave<kGroups>(p, p.source + kSources * s, ahead_of(p, s));
    first_group(factors, p.interleaved, p.remainder);
    if (kGroups == 2) second_group(p.interleaved, p.remainder);
  }
  BRAID_TILE_STORE(0, p.sums, 64);
  BRAID_TILE_STORE(1, p.sums + kTile, 64);
  if (kGroups == 2) {
    BRAID_TILE_STORE(2, p.sums + 2 * kTile, 64);
    BRAID_TILE_STORE(3, p.sums + 3 * kTile, 64);
  }
}

BRAID_TILE_FN void products(const Products& p) { p.wide ? sum_steps<2>(p) : sum_steps<1>(p); }

}  // namespace
}  // namespace braid::spmm_tiles
