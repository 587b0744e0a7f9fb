#include "math/solve.h"

#include <cmath>
#include <cstddef>

namespace braid {

bool solve_rows(std::vector<double>& a, std::vector<double>& b, int64_t n) {
  const auto width = static_cast<size_t>(n);
  for (size_t i = 0; i < width; ++i) {
    double* row = a.data() + i * width;
    for (size_t j = 0; j <= i; ++j) {
      const double* other = a.data() + j * width;
      double sum = row[j];
      for (size_t k = 0; k < j; ++k) sum -= row[k] * other[k];
      if (i == j && !(sum > 0)) return false;
      row[j] = i == j ? std::sqrt(sum) : sum / other[j];
    }
  }
  for (double* x = b.data(); x != b.data() + b.size(); x += n) {
    for (size_t i = 0; i < width; ++i) {
      for (size_t k = 0; k < i; ++k) x[i] -= a[i * width + k] * x[k];
      x[i] /= a[i * width + i];
    }
    for (size_t i = width; i-- > 0;) {
      x[i] /= a[i * width + i];
      for (size_t k = 0; k < i; ++k) x[k] -= a[i * width + k] * x[i];
    }
  }
  return true;
}

}  // namespace braid
