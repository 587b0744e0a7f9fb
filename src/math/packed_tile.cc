// The packed kernel on tiles: one strip (tile_strip.h) of 32 x 32 sums. A panel of a is [32][depth] as the strip reads
// weights, a panel of b is two blocks of 16 as tile.h packs activations; depths are padded to 32.
#include <algorithm>
#include <cstring>

#include "core/dtype.h"
#include "math/packed_kernel.h"
#include "math/tile.h"

namespace braid::packed {
namespace {

constexpr int64_t kWidth = 32, kStep = 32, kBlock = 16;

Bf16 value_at(const Source& s, int64_t at) {
  return s.bf16 ? static_cast<const Bf16*>(s.data)[at] : to_bf16(static_cast<const float*>(s.data)[at]);
}

// Where element (i, k) of a panel lies.
int64_t row_place(int64_t i, int64_t k, int64_t depth) { return i * depth + k; }
int64_t col_place(int64_t i, int64_t k, int64_t depth) {
  return i / kBlock * kBlock * depth + k / 2 * 2 * kBlock + i % kBlock * 2 + k % 2;
}

template <int64_t (*kPlace)(int64_t, int64_t, int64_t)>
void pack(const Source& s, int64_t /*width*/, int64_t n, int64_t depth, void* panels) {
  const int64_t padded = (depth + kStep - 1) / kStep * kStep;
  auto* out = static_cast<Bf16*>(panels);
  for (int64_t first = 0; first < n; first += kWidth, out += kWidth * padded) {
    std::memset(static_cast<void*>(out), 0, static_cast<size_t>(kWidth * padded) * sizeof(Bf16));
    const int64_t width = std::min(kWidth, n - first);
    if (s.along) {
      for (int64_t i = 0; i < width; ++i) {
        for (int64_t k = 0; k < depth; ++k) out[kPlace(i, k, padded)] = value_at(s, (first + i) * s.stride + k);
      }
    } else {
      for (int64_t k = 0; k < depth; ++k) {
        for (int64_t i = 0; i < width; ++i) out[kPlace(i, k, padded)] = value_at(s, k * s.stride + first + i);
      }
    }
  }
}

template <void (*kStrip)(const tiles::Strip&)>
void tile(const Tile& t) {
  alignas(64) float sums[kWidth * kWidth];
  tiles::Strip s;
  s.w = static_cast<const uint16_t*>(t.a);
  s.w_stride = t.depth;
  s.steps = t.depth / kStep;
  s.packed = static_cast<const uint16_t*>(t.b);
  s.row_blocks = kWidth / kBlock;
  s.sums = sums;
  kStrip(s);
  for (int64_t m = 0; m < kWidth; ++m) {
    float* y = t.y + m * t.y_stride;
    const float* from = sums + m * kWidth;
    for (int64_t n = 0; n < kWidth; ++n) y[n] = t.add ? y[n] + from[n] : from[n];
  }
}

template <void (*kStrip)(const tiles::Strip&)>
Kernel kernel_over() {
  return {.rows = kWidth,
          .cols = kWidth,
          .step = kStep,
          .value_bytes = 2,
          .pack_rows = &pack<row_place>,
          .pack_cols = &pack<col_place>,
          .tile = &tile<kStrip>};
}

}  // namespace

Kernel tile_bf16() { return kernel_over<tiles::strip_amx>(); }
Kernel soft_tile_bf16() { return kernel_over<tiles::strip_soft>(); }

}  // namespace braid::packed
