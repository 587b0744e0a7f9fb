#include "math/packed_weight.h"

namespace braid::packed {
namespace {

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

DType decoded_type(const Weight& w) { return codec_of(w).exact_in_bf16 ? DType::bf16 : DType::f32; }

// The longest depth block of any depth up to that: a shorter depth may have longer blocks.
int64_t block_depth_max(int64_t depth) { return block_depth(std::min(depth, kDepthMax)); }

int64_t panel_bytes(const Kernel& kernel, Side side, int64_t n, int64_t depth) {
  return round_up(packed_bytes(kernel, side, n, block_depth_max(depth)), 64);
}

// Without Weight::global.
void multiply_codes(const Kernel& kernel, const Multiply& p, std::byte* space) {
  std::byte* const right = space + panel_bytes(kernel, Side::rows, std::min(p.rows, kMultiplyRows), p.depth);
  std::byte* const decoded = right + panel_bytes(kernel, Side::cols, p.cols, p.depth);
  const int64_t block = block_depth(p.depth);
  for (int64_t k = 0; k < p.depth; k += block) {
    const int64_t depth = std::min(block, p.depth - k);
    pack(kernel, p.w, {.i = p.col, .n = p.cols, .k = k, .depth = depth}, decoded, right);
    for (int64_t i = 0; i < p.rows; i += kMultiplyRows) {
      const int64_t rows = std::min(kMultiplyRows, p.rows - i);
      pack(kernel, Side::rows, from(p.a, i, k), rows, depth, space);
      product(kernel, {.a = space,
                       .b = right,
                       .m = rows,
                       .n = p.cols,
                       .depth = depth,
                       .y = p.y + i * p.y_stride,
                       .y_stride = p.y_stride,
                       .add = p.add || k > 0});
    }
  }
}

}  // namespace

int64_t scratch_bytes(const WeightOperand& w, int64_t n, int64_t depth) {
  return w.decoded() ? round_up(n * depth * size_of(decoded_type(w.w)), 64) : 0;
}

void pack(const Kernel& kernel, const WeightOperand& w, const WeightPart& part, std::byte* scratch, std::byte* out) {
  if (!w.decoded()) {
    const Source all = w.along ? along(w.w.codes) : across(w.w.codes);
    return pack(kernel, Side::cols, from(all, part.i, part.k), part.n, part.depth, out);
  }
  const int64_t row = w.along ? part.i : part.k, col = w.along ? part.k : part.i;
  const int64_t rows = w.along ? part.n : part.depth, cols = w.along ? part.depth : part.n;
  const bool bf16 = decoded_type(w.w) == DType::bf16;
  for (int64_t r = 0; r < rows; ++r) {
    if (bf16) {
      decode_row(w.w, row + r, col, cols, reinterpret_cast<Bf16*>(scratch) + r * cols);
    } else {
      decode_row(w.w, row + r, col, cols, reinterpret_cast<float*>(scratch) + r * cols);
    }
  }
  const Source decoded{.data = scratch, .stride = cols, .bf16 = bf16, .along = w.along};
  pack(kernel, Side::cols, decoded, part.n, part.depth, out);
}

// Sums of quantised weights are scaled outside y: kMultiplyRows rows of them at the end of the space.
int64_t multiply_bytes(const Kernel& kernel, const WeightOperand& w, int64_t rows, int64_t cols, int64_t depth) {
  const int64_t most = std::min(rows, kMultiplyRows);
  const int64_t sums = w.decoded() ? most * cols * static_cast<int64_t>(sizeof(float)) : 0;
  return panel_bytes(kernel, Side::rows, most, depth) + panel_bytes(kernel, Side::cols, cols, depth) +
         scratch_bytes(w, cols, block_depth_max(depth)) + round_up(sums, 64);
}

void multiply(const Kernel& kernel, const Multiply& p, std::span<std::byte> space) {
  const float global = p.w.w.global;
  const int64_t bytes = multiply_bytes(kernel, p.w, p.rows, p.cols, p.depth);
  CHECK(std::ssize(space) >= bytes, "{} bytes, {} needed", space.size(), bytes);
  if (!p.add || global == 1.0f) {
    multiply_codes(kernel, p, space.data());
    return scale(global, p.rows, p.cols, p.y, p.y_stride);
  }
  CHECK(p.w.decoded(), "a factor for a weight that is not decoded");
  auto* const sums =
      reinterpret_cast<float*>(space.data() + bytes) - round_up(std::min(p.rows, kMultiplyRows) * p.cols, 16);
  for (int64_t i = 0; i < p.rows; i += kMultiplyRows) {
    Multiply some = p;
    some.a = from(p.a, i, 0);
    some.rows = std::min(kMultiplyRows, p.rows - i);
    some.y = sums, some.y_stride = p.cols, some.add = false;
    multiply_codes(kernel, some, space.data());
    for (int64_t r = 0; r < some.rows; ++r) {
      for (int64_t c = 0; c < p.cols; ++c) p.y[(i + r) * p.y_stride + c] += global * sums[r * p.cols + c];
    }
  }
}

void scale(float factor, int64_t rows, int64_t cols, float* values, int64_t stride) {
  if (factor == 1.0f) return;
  for (int64_t r = 0; r < rows; ++r, values += stride) {
    for (int64_t c = 0; c < cols; ++c) values[c] *= factor;
  }
}

}  // namespace braid::packed
