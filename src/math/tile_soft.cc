// tile_amx-inl.h over software tiles: for tests, and as the definition of what the instructions compute.
#include "math/tile_soft.h"

#include <cmath>

#include "core/dtype.h"
#include "math/blocks.h"
#include "math/tile_strip.h"

namespace braid::tiles {

const Walk& walk_soft();

namespace {

SoftTiles& soft() {
  thread_local SoftTiles tiles;
  return tiles;
}

}  // namespace
}  // namespace braid::tiles

#define BRAID_TILE_FN
#define BRAID_TILE_CONFIGURE(width) soft().configure(width)
#define BRAID_TILE_ZERO(t) soft().zero(t)
#define BRAID_TILE_LOAD(t, p, stride) soft().load(t, p, stride)
#define BRAID_TILE_STORE(t, p, stride) soft().store(t, p, stride)
#define BRAID_TILE_DOT(c, a, b) soft().dot_bf16(c, a, b)
#include "math/tile_amx-inl.h"

namespace braid::tiles {
namespace {

uint16_t tile_value(float v) { return to_bf16(std::ldexp(v, -112)).bits; }
float f8(uint8_t code) { return to_float(F8E4M3{code}); }

void nvfp4_row(const uint8_t* codes, const uint8_t* scales, int64_t n, uint16_t* out) {
  for (int64_t i = 0; i < n; ++i) {
    const int code = i % 2 ? codes[i / 2] >> 4 : codes[i / 2] & 15;
    out[i] = tile_value(e2m1_value(code) * f8(scales[i / 16]));
  }
}

void fp8_row(const uint8_t* codes, int64_t n, uint16_t* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = tile_value(f8(codes[i]));
}

void strip_soft(const Strip& s) { strip(s); }
void release() {}

}  // namespace

const Walk& walk_soft() {
  static constexpr Walk kWalk{&strip_soft, &release, &nvfp4_row, &fp8_row};
  return kWalk;
}

}  // namespace braid::tiles
