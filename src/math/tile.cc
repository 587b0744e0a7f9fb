#include "math/tile.h"

#include <algorithm>
#include <cstring>

namespace braid::tiles {
namespace {

constexpr int64_t kBlock = 16, kStep = 32;  // rows of x and values along k of a packed tile
constexpr int64_t kTileBytes = 1024;

int64_t blocks_of(int64_t rows) { return (rows + kBlock - 1) / kBlock; }
int64_t steps_of(int64_t depth) { return (depth + kStep - 1) / kStep; }

int64_t sum_bytes(int64_t rows) { return kStripCols * blocks_of(rows) * kBlock * static_cast<int64_t>(sizeof(float)); }

// `rows` rows of `n` values, kStripCols by `width` with zeros beyond.
void copy_padded(const Bf16* from, int64_t stride, int64_t rows, int64_t n, int64_t width, uint16_t* to) {
  std::memset(to, 0, static_cast<size_t>(kStripCols * width) * 2);
  for (int64_t r = 0; r < rows; ++r) std::memcpy(to + r * width, from + r * stride, static_cast<size_t>(n) * 2);
}

void write(const float* sums, int64_t row_stride, int64_t cols, float global, const MutView& y, int64_t col) {
  for (int64_t m = 0; m < y.dim(0); ++m) {
    for (int64_t n = 0; n < cols; ++n) {
      const float v = sums[n * row_stride + m] * global;
      if (y.dtype == DType::bf16) {
        y.as<Bf16>(m)[col + n] = to_bf16(v);
      } else {
        y.as<float>(m)[col + n] = v;
      }
    }
  }
}

}  // namespace

int64_t packed_bytes(int64_t rows, int64_t depth) {
  return blocks_of(std::min(rows, kRowsMax)) * steps_of(depth) * kTileBytes;
}

void pack(const View& x, int64_t begin, int64_t end, std::byte* packed) {
  const int64_t depth = x.dim(1), steps = steps_of(depth);
  for (int64_t i = begin; i < end; ++i) {
    auto* out = reinterpret_cast<Bf16*>(packed) + i * steps * kBlock * kStep;
    std::memset(static_cast<void*>(out), 0, static_cast<size_t>(steps * kTileBytes));
    for (int64_t r = 0; r < std::min(kBlock, x.dim(0) - i * kBlock); ++r) {
      const Bf16* row = x.as<Bf16>(i * kBlock + r);
      for (int64_t k = 0; k < depth; ++k) out[k / 2 * kBlock * 2 + r * 2 + k % 2] = row[k];
    }
  }
}

int64_t workspace(int64_t rows, int64_t depth) {
  // Sums, a padded tail step, and a padded copy of the last strip.
  return sum_bytes(std::min(rows, kRowsMax)) + kStripCols * kStep * 2 + kStripCols * steps_of(depth) * kStep * 2;
}

void product(void (*strip)(const Strip&), const std::byte* packed, const Weight& w, const MutView& y,
             std::span<std::byte> workspace) {
  const int64_t depth = w.cols, rows = y.dim(0), row_stride = blocks_of(rows) * kBlock;
  auto* sums = reinterpret_cast<float*>(workspace.data());
  auto* tail = reinterpret_cast<uint16_t*>(workspace.data() + sum_bytes(rows));
  uint16_t* padded = tail + kStripCols * kStep;
  for (int64_t n = 0; n < w.rows; n += kStripCols) {
    const int64_t cols = std::min(kStripCols, w.rows - n), stride = w.codes.stride(0);
    const Bf16* from = w.codes.as<Bf16>(n);
    Strip s;
    s.packed = reinterpret_cast<const uint16_t*>(packed);
    s.row_blocks = blocks_of(rows);
    s.sums = sums;
    if (cols < kStripCols) {
      s.w = padded;
      s.w_stride = steps_of(depth) * kStep;
      s.steps = steps_of(depth);
      copy_padded(from, stride, cols, depth, s.w_stride, padded);
    } else {
      s.w = reinterpret_cast<const uint16_t*>(from);
      s.w_stride = stride;
      s.steps = depth / kStep;
      if (depth % kStep != 0) {
        s.tail = tail;
        copy_padded(from + s.steps * kStep, stride, cols, depth % kStep, kStep, tail);
      }
    }
    strip(s);
    write(sums, row_stride, cols, w.global, y, n);
  }
}

}  // namespace braid::tiles
