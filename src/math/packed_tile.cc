// The packed kernel on tiles: 32 x 32 sums, depths padded to 32. packed_walk-inl.h defines the layout of panels. Panels
// for AMX are packed with AVX-512; the loops here, element by element, are for software tiles and define what a panel
// is.
#include <algorithm>
#include <cstring>

#include "core/dtype.h"
#include "math/packed_kernel.h"
#include "math/tile_soft.h"

#define BRAID_TILE_FN
#define BRAID_TILE_ZERO(t) soft().zero(t)
#define BRAID_TILE_LOAD(t, p, stride) soft().load(t, p, stride)
#define BRAID_TILE_STREAM(t, p, stride) soft().load(t, p, stride)
#define BRAID_TILE_STORE(t, p, stride) soft().store(t, p, stride)
#define BRAID_TILE_DOT(c, a, b) soft().dot_bf16(c, a, b)
#define BRAID_TILE_FETCH(p) static_cast<void>(p)
namespace braid::packed {
namespace {

tiles::SoftTiles& soft() {
  thread_local tiles::SoftTiles tiles;
  return tiles;
}

}  // namespace
}  // namespace braid::packed
#include "math/packed_walk-inl.h"

namespace braid::packed {

void walk_amx(const Tile& t);

namespace {

constexpr int64_t kWidth = 32, kStep = 32, kBlock = 16;
constexpr int64_t kChain = 512;  // 32 rows of it leave L1 room for what streams by

Bf16 value_at(const Source& s, int64_t at) {
  return s.bf16 ? static_cast<const Bf16*>(s.data)[at] : to_bf16(static_cast<const float*>(s.data)[at]);
}

// The offset of element (i, k) in a panel.
int64_t row_place(int64_t i, int64_t k, int64_t /*depth*/) {
  return k / kStep * kWidth * kStep + i * kStep + k % kStep;
}
int64_t col_place(int64_t i, int64_t k, int64_t depth) {
  return i / kBlock * kBlock * depth + k / 2 * 2 * kBlock + i % kBlock * 2 + k % 2;
}

template <int64_t (*kPlace)(int64_t, int64_t, int64_t)>
void pack_slowly(const Source& s, int64_t /*width*/, int64_t n, int64_t depth, void* panels) {
  const int64_t padded = (depth + kStep - 1) / kStep * kStep;
  auto* out = static_cast<Bf16*>(panels);
  for (int64_t first = 0; first < n; first += kWidth, out += kWidth * padded) {
    std::memset(static_cast<void*>(out), 0, static_cast<size_t>(kWidth * padded) * sizeof(Bf16));
    for (int64_t i = 0; i < std::min(kWidth, n - first); ++i) {
      for (int64_t k = 0; k < depth; ++k) {
        const int64_t at = s.along ? (first + i) * s.stride + k : k * s.stride + first + i;
        out[kPlace(i, k, padded)] = value_at(s, at);
      }
    }
  }
}

}  // namespace

Kernel tile_bf16() {
  return {.rows = kWidth,
          .cols = kWidth,
          .step = kStep,
          .value_bytes = 2,
          .halves = true,
          .chain = kChain,
          .pack_rows = &pack_tile_rows_avx512,
          .pack_cols = &pack_tile_cols_avx512,
          .tiles = &walk_amx};
}

Kernel soft_tile_bf16() {
  return {.rows = kWidth,
          .cols = kWidth,
          .step = kStep,
          .value_bytes = 2,
          .halves = true,
          .chain = kChain,
          .pack_rows = &pack_slowly<row_place>,
          .pack_cols = &pack_slowly<col_place>,
          .tiles = &walk};
}

}  // namespace braid::packed
