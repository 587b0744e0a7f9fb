// The formula of muon.h, in double.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

namespace braid {

// a [rows, depth] times b [depth, cols]
inline std::vector<double> matrix_ref(const std::vector<double>& a, const std::vector<double>& b, size_t depth) {
  const size_t rows = a.size() / depth, cols = b.size() / depth;
  std::vector<double> y(rows * cols);
  for (size_t i = 0; i < rows; ++i) {
    for (size_t k = 0; k < depth; ++k) {
      for (size_t j = 0; j < cols; ++j) y[i * cols + j] += a[i * depth + k] * b[k * cols + j];
    }
  }
  return y;
}

inline std::vector<double> transposed_ref(const std::vector<double>& x, size_t rows) {
  const size_t cols = x.size() / rows;
  std::vector<double> y(x.size());
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < cols; ++j) y[j * rows + i] = x[i * cols + j];
  }
  return y;
}

struct NewtonSchulz {
  int64_t steps = 0;
  double a = 0, b = 0, c = 0;
};
// u [rows, cols] -> approximately its orthogonal factor
inline std::vector<double> orthogonal_ref(const NewtonSchulz& s, std::vector<double> u, size_t rows) {
  const size_t cols = u.size() / rows;
  if (rows > cols) return transposed_ref(orthogonal_ref(s, transposed_ref(u, rows), cols), cols);
  double norm = 1e-20;
  for (const double v : u) norm += v * v;
  for (double& v : u) v /= std::sqrt(norm);
  for (int64_t step = 0; step < s.steps; ++step) {
    std::vector<double> p = matrix_ref(u, transposed_ref(u, rows), cols);
    const std::vector<double> square = matrix_ref(p, p, rows);
    for (size_t i = 0; i < p.size(); ++i) p[i] = s.b * p[i] + s.c * square[i];
    const std::vector<double> change = matrix_ref(p, u, rows);
    for (size_t i = 0; i < u.size(); ++i) u[i] = s.a * u[i] + change[i];
  }
  return u;
}

}  // namespace braid
