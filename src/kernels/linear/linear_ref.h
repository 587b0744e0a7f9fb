// y = x W^T + b and its derivatives, for double and complex<double>.
#pragma once
#include <cstdint>
#include <vector>

namespace braid {

// x [T, K], w [N, K], bias [N] or empty -> y [T, N]
template <class Num>
void linear_fwd_ref(int64_t tokens, int64_t rows, int64_t depth, const std::vector<Num>& x, const std::vector<Num>& w,
                    const std::vector<Num>& bias, std::vector<Num>& y) {
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t n = 0; n < rows; ++n) {
      Num sum = bias.empty() ? Num(0) : bias[static_cast<size_t>(n)];
      for (int64_t k = 0; k < depth; ++k)
        sum += x[static_cast<size_t>(t * depth + k)] * w[static_cast<size_t>(n * depth + k)];
      y[static_cast<size_t>(t * rows + n)] = sum;
    }
  }
}

// dy [T, N], w [N, K] -> dx [T, K]
inline void linear_bwd_data_ref(int64_t tokens, int64_t rows, int64_t depth, const std::vector<double>& dy,
                                const std::vector<double>& w, std::vector<double>& dx) {
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t n = 0; n < rows; ++n) {
      for (int64_t k = 0; k < depth; ++k)
        dx[static_cast<size_t>(t * depth + k)] +=
            dy[static_cast<size_t>(t * rows + n)] * w[static_cast<size_t>(n * depth + k)];
    }
  }
}

// dy [T, N], x [T, K] -> dw [N, K], dbias [N]
inline void linear_bwd_weight_ref(int64_t tokens, int64_t rows, int64_t depth, const std::vector<double>& dy,
                                  const std::vector<double>& x, std::vector<double>& dw, std::vector<double>& dbias) {
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t n = 0; n < rows; ++n) {
      const double g = dy[static_cast<size_t>(t * rows + n)];
      dbias[static_cast<size_t>(n)] += g;
      for (int64_t k = 0; k < depth; ++k)
        dw[static_cast<size_t>(n * depth + k)] += g * x[static_cast<size_t>(t * depth + k)];
    }
  }
}

}  // namespace braid
