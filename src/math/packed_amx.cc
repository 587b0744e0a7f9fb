// packed_walk-inl.h over the instructions. Called only where sys::machine() has tiles and the kernel's permission.
#include <immintrin.h>

#define BRAID_TILE_FN __attribute__((target("amx-tile,amx-bf16")))
#define BRAID_TILE_ZERO(t) _tile_zero(t)
#define BRAID_TILE_LOAD(t, p, stride) _tile_loadd(t, p, stride)
#define BRAID_TILE_STREAM(t, p, stride) _tile_stream_loadd(t, p, stride)
#define BRAID_TILE_STORE(t, p, stride) _tile_stored(t, p, stride)
#define BRAID_TILE_DOT(c, a, b) _tile_dpbf16ps(c, a, b)
#define BRAID_TILE_FETCH(p) asm volatile("prefetcht0 %0" : : "m"(*(p)))
#include "math/packed_walk-inl.h"
#include "math/tile_config.h"

namespace braid::packed {

// The configuration is per thread and loaded once per product; released, so that context switches save no tiles.
BRAID_TILE_FN void walk_amx(const Tile& t) {
  static constexpr tiles::Config kConfig{};
  _tile_loadconfig(&kConfig);
  walk(t);
  _tile_release();
}

}  // namespace braid::packed
