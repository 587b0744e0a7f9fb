// The product on tiles that forward and backward of the experts share.
#include <algorithm>

#include "kernels/experts/experts_rows.h"
#include "math/packed.h"

namespace braid {
namespace {

using packed::Side;

int64_t row_bytes(const packed::Kernel& kernel, int64_t depth) {
  return (packed_bytes(kernel, Side::rows, kTileRows, packed::block_depth(depth)) + 63) / 64 * 64;
}

}  // namespace

int64_t tile_product_bytes(const packed::Kernel& kernel, int64_t cols, int64_t depth) {
  return row_bytes(kernel, depth) + (packed_bytes(kernel, Side::cols, cols, packed::block_depth(depth)) + 63) / 64 * 64;
}

void tile_product(const packed::Kernel& kernel, const TileProduct& p, std::byte* space) {
  std::byte* const b = space + row_bytes(kernel, p.depth);
  const int64_t block = packed::block_depth(p.depth);
  for (int64_t k = 0; k < p.depth; k += block) {
    const int64_t depth = std::min(block, p.depth - k);
    packed::pack(kernel, Side::cols, packed::from(p.w, 0, k), p.cols, depth, b);
    for (int64_t i = 0; i < p.rows; i += kTileRows) {
      const int64_t rows = std::min(kTileRows, p.rows - i);
      packed::pack(kernel, Side::rows, packed::from(p.a, i, k), rows, depth, space);
      packed::product(kernel, {.a = space,
                               .b = b,
                               .m = rows,
                               .n = p.cols,
                               .depth = depth,
                               .y = p.y + i * p.y_stride,
                               .y_stride = p.y_stride,
                               .add = p.add || k > 0});
    }
  }
}

}  // namespace braid
