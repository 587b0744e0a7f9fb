// A weight of any format as an operand of a product on packed operands: F32 and BF16 are packed directly, other formats
// are decoded a part at a time into scratch, without Weight::global, which the product applies to its sums.
#pragma once
#include <cstddef>
#include <span>

#include "codec/codec.h"
#include "core/weight.h"
#include "math/packed.h"

namespace braid::packed {

// Which index of the weight runs along the depth: columns in y = x W^T, rows in dx = dy W.
struct WeightOperand {
  Weight w{};
  bool along = true;

  bool decoded() const { return !codec_of(w).in_place; }
};

// Panels of Side::cols from i on, at depth k: n values of i, `depth` of k. If the weight is decoded its columns must
// start at a multiple of the format's block: i and k of every caller are multiples of 32.
struct WeightPart {
  int64_t i = 0, n = 0, k = 0, depth = 0;
};

// Bytes of scratch for parts of at most n by depth; 0 if nothing is decoded.
int64_t scratch_bytes(const WeightOperand& w, int64_t n, int64_t depth);
void pack(const Kernel& kernel, const WeightOperand& w, const WeightPart& part, std::byte* scratch, std::byte* out);

// A product that packs both of its operands, on the calling thread: y [rows, cols] (+)= a times columns [col, col +
// cols) of w, in the sense of WeightOperand. One chain over the depth for each sum, kMultiplyRows rows at a time.
inline constexpr int64_t kMultiplyRows = 256;
struct Multiply {
  Source a{};
  WeightOperand w{};
  int64_t rows = 0, col = 0, cols = 0, depth = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
  bool add = false;
};
// Enough for products of at most that many rows, columns and values along the depth.
int64_t multiply_bytes(const Kernel& kernel, const WeightOperand& w, int64_t rows, int64_t cols, int64_t depth);
void multiply(const Kernel& kernel, const Multiply& p, std::span<std::byte> space);

// Rows [0, rows) of `values` times `factor`; a no-op if that is one.
void scale(float factor, int64_t rows, int64_t cols, float* values, int64_t stride);

}  // namespace braid::packed
