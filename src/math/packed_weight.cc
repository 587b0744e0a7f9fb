#include "math/packed_weight.h"

#include "math/blocks.h"

namespace braid::packed {
namespace {

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

DType decoded_type(const Weight& w) { return exact_in_bf16(w.spec.format) ? DType::bf16 : DType::f32; }

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

void scale(float factor, int64_t rows, int64_t cols, float* values, int64_t stride) {
  if (factor == 1.0f) return;
  for (int64_t r = 0; r < rows; ++r, values += stride) {
    for (int64_t c = 0; c < cols; ++c) values[c] *= factor;
  }
}

}  // namespace braid::packed
