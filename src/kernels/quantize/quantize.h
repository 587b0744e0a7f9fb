// Emulates an operand of a low-precision product: a matrix is quantised and dequantised again, to try training in
// formats that the machine does not support. Numerics only; nothing gets faster.
//
//   encoding   elements   scale of a block                                        block
//   fp8_e4m3   E4M3       FP32, amax / 448                                        128
//   fp8_e5m2   E5M2       FP32, amax / 57344                                      128
//   mxfp8      E4M3       2^ceil(log2(amax / 448))                                32
//   mxfp4      E2M1       2^(floor(log2 amax) - 2)                                32
//   nvfp4      E2M1       E4M3(amax / 6S) * S, S = amax of the matrix / (6 * 448) 16
//
// The matrix is the whole operand of one product, with all tokens of a micro-batch: amax and blocks of tokens are those
// of the published recipes (docs/internals/train.md, Low precision).
//
// Rounding is to nearest, ties to the even code, or stochastic; values beyond the largest element saturate, and
// non-finite values become NaN. A block at an edge is shorter, not shifted. Inference does not use this op, and its
// gradient is the identity (the straight-through estimator), so there is no backward struct.
#pragma once
#include "core/op.h"
#include "core/philox.h"

namespace braid {

enum class Encoding : uint8_t { none, fp8_e4m3, fp8_e5m2, mxfp8, mxfp4, nvfp4 };
const char* name_of(Encoding e);

// Which elements share a scale: all, a run of one row, a run of one column, or a square.
enum class Scaling : uint8_t { matrix, along_cols, along_rows, square };

struct OperandSpec {
  Encoding encoding = Encoding::none;
  Scaling scaling = Scaling::matrix;  // matrix: FP8 only
  // Rows are first mixed by an orthonormal 16 x 16 Hadamard matrix with fixed signs. Where both operands of a product
  // along the rows are mixed, it cancels: (H a)^T (H b) = a^T b.
  bool hadamard = false;
  bool stochastic = false;  // rounds up with probability equal to the distance from below: unbiased
  bool operator==(const OperandSpec&) const = default;
};

// The operands of y = x W^T, of dx = dy W, and of dW = dy^T x.
struct ProductSpecs {
  OperandSpec forward_x{}, forward_w{};
  OperandSpec data_dy{}, data_w{};
  OperandSpec weight_dy{}, weight_x{};
  bool operator==(const ProductSpecs&) const = default;
};

// Source of noise for stochastic rounding: a function of the key, of row0 + the row, and of the column.
struct Noise {
  RandomKey key{};
  int64_t row0 = 0;
};

// Rows of the result: those of x, with `hadamard` rounded up to whole Hadamard blocks.
int64_t quantized_rows(const OperandSpec& spec, int64_t rows);

struct Quantize {
  View x{};     // [T, N] F32 or BF16; rows may be strided
  MutView q{};  // [R, N] F32, or BF16: one more rounding, of 2^-9, in formats whose scale is not a power of two
  OperandSpec spec{};
  Noise noise{};
  static constexpr const char* name = "quantize";
  static constexpr auto fields() { return std::tuple{in("x", &Quantize::x, "T N"), out("q", &Quantize::q, "R N")}; }
  double flops() const { return 0; }
  static std::span<const Row<Quantize>> rows();
};

}  // namespace braid
