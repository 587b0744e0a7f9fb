// tile_amx-inl.h over software tiles: for tests, and as the word on what the instructions compute.
#include "math/tile_soft.h"

#include "math/tile_strip.h"

namespace braid::tiles {

void strip_soft(const Strip& s);

namespace {

SoftTiles& soft() {
  thread_local SoftTiles tiles;
  return tiles;
}

}  // namespace
}  // namespace braid::tiles

#define BRAID_TILE_FN
#define BRAID_TILE_ZERO(t) soft().zero(t)
#define BRAID_TILE_LOAD(t, p, stride) soft().load(t, p, stride)
#define BRAID_TILE_STORE(t, p, stride) soft().store(t, p, stride)
#define BRAID_TILE_DOT(c, a, b) soft().dot_bf16(c, a, b)
#include "math/tile_amx-inl.h"

void braid::tiles::strip_soft(const Strip& s) { strip(s); }
