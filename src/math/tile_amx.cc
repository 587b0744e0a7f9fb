// tile_amx-inl.h over the instructions. Called only where sys::machine() has tiles and the kernel's permission.
#include <immintrin.h>

#include "math/tile_strip.h"

#define BRAID_TILE_FN __attribute__((target("amx-tile,amx-bf16")))
#define BRAID_TILE_ZERO(t) _tile_zero(t)
#define BRAID_TILE_LOAD(t, p, stride) _tile_loadd(t, p, stride)
#define BRAID_TILE_STORE(t, p, stride) _tile_stored(t, p, stride)
#define BRAID_TILE_DOT(c, a, b) _tile_dpbf16ps(c, a, b)
#include "math/tile_amx-inl.h"
#include "math/tile_config.h"

namespace braid::tiles {

void strip_amx(const Strip& s);

// The configuration is per thread and cheap beside a strip; released, so that switches of threads save no tiles.
BRAID_TILE_FN void strip_amx(const Strip& s) {
  static constexpr Config kConfig{};
  _tile_loadconfig(&kConfig);
  strip(s);
  _tile_release();
}

}  // namespace braid::tiles
