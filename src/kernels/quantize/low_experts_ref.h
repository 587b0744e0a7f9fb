// The experts on quantised operands, one expert at a time: with sums in double, as the reference of low_experts.
#pragma once
#include <cmath>
#include <vector>

#include "core/ref.h"
#include "kernels/quantize/low_experts.h"
#include "kernels/quantize/quantize_ref.h"

namespace braid {

struct MatrixRef {
  int64_t rows = 0, cols = 0;
  std::vector<float> v{};
  float& at(int64_t r, int64_t c) { return v[static_cast<size_t>(r * cols + c)]; }
  float at(int64_t r, int64_t c) const { return v[static_cast<size_t>(r * cols + c)]; }
};

inline MatrixRef matrix_ref(int64_t rows, int64_t cols) {
  return {rows, cols, std::vector<float>(static_cast<size_t>(rows * cols))};
}
inline MatrixRef matrix_ref(const View& view) {
  const auto all = to_doubles(view);
  return {view.dim(0), view.dim(1), {all.begin(), all.end()}};
}

// Operands are held in `type`, F32 or BF16.
inline MatrixRef operand_ref(const OperandSpec& spec, const MatrixRef& x, DType type, const Noise& noise = {}) {
  MatrixRef q{quantized_rows(spec, x.rows), x.cols, quantize_ref(spec, x.rows, x.cols, x.v, noise)};
  for (float& v : q.v) v = type == DType::bf16 ? to_float(to_bf16(v)) : v;
  return q;
}

// sum over k of a(m, k) b(n, k), where a flag says that a matrix is read transposed.
inline MatrixRef product_ref(const MatrixRef& a, bool a_transposed, const MatrixRef& b, bool b_transposed) {
  const int64_t depth = a_transposed ? a.rows : a.cols;
  MatrixRef y = matrix_ref(a_transposed ? a.cols : a.rows, b_transposed ? b.cols : b.rows);
  for (int64_t m = 0; m < y.rows; ++m) {
    for (int64_t n = 0; n < y.cols; ++n) {
      double sum = 0;
      for (int64_t k = 0; k < depth; ++k)
        sum += static_cast<double>(a_transposed ? a.at(k, m) : a.at(m, k)) *
               static_cast<double>(b_transposed ? b.at(k, n) : b.at(n, k));
      y.at(m, n) = static_cast<float>(sum);
    }
  }
  return y;
}

// The value of the activation, or its derivative.
inline double act_ref(double v, bool silu, bool slope) {
  const double s = 1 / (1 + std::exp(-v)), positive = std::max(v, 0.0);
  if (silu) return slope ? s + v * s * (1 - s) : v * s;
  return slope ? 2 * positive : positive * positive;
}

}  // namespace braid
