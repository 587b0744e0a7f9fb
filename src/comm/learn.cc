#include "comm/learn.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "sys/check.h"

namespace braid::comm {
namespace {

double gaussian(const Features& a, const Features& b, double gamma) {
  double square = 0;
  for (size_t i = 0; i < a.size(); ++i) square += (a[i] - b[i]) * (a[i] - b[i]);
  return std::exp(-gamma * square);
}

// Minimises a'Qa/2 - sum of a with 0 <= a <= cost and sum of class a = 0, Q_ij = class_i class_j kernel_ij.
struct Smo {
  std::span<const int> classes;
  std::vector<double> kernel;  // [n, n]
  std::vector<double> a, slope;

  struct Pair {
    size_t up = 0, down = 0;
    double high = -std::numeric_limits<double>::infinity(), low = std::numeric_limits<double>::infinity();
  };

  // The multiplier that most wants to move with its class, and the one that most wants to move against it.
  Pair worst() const {
    Pair pair;
    for (size_t i = 0; i < a.size(); ++i) {
      const double wish = -classes[i] * slope[i];
      const bool may_grow = a[i]<Svm::kCost, may_shrink = a[i]> 0;
      if ((classes[i] > 0 ? may_grow : may_shrink) && wish > pair.high) pair.high = wish, pair.up = i;
      if ((classes[i] > 0 ? may_shrink : may_grow) && wish < pair.low) pair.low = wish, pair.down = i;
    }
    return pair;
  }

  // Moves a pair along class_i a_i + class_j a_j = const to the least value, or to the first bound.
  void move(const Pair& pair) {
    const size_t n = a.size(), i = pair.up, j = pair.down;
    const double curve = kernel[i * n + i] + kernel[j * n + j] - 2 * kernel[i * n + j];
    double step = (pair.high - pair.low) / std::max(curve, 1e-12);
    step = std::min(step, classes[i] > 0 ? Svm::kCost - a[i] : a[i]);
    step = std::min(step, classes[j] > 0 ? a[j] : Svm::kCost - a[j]);
    const double before[2] = {a[i], a[j]};
    a[i] = std::clamp(a[i] + classes[i] * step, 0.0, Svm::kCost);
    a[j] = std::clamp(a[j] - classes[j] * step, 0.0, Svm::kCost);
    const double moved_i = classes[i] * (a[i] - before[0]), moved_j = classes[j] * (a[j] - before[1]);
    for (size_t k = 0; k < n; ++k) slope[k] += classes[k] * (moved_i * kernel[i * n + k] + moved_j * kernel[j * n + k]);
  }
};

// Solves (matrix + penalty I) x = right for a symmetric matrix without negative eigenvalues, by Cholesky in place.
std::vector<double> solved(std::vector<double> matrix, std::vector<double> right, double penalty) {
  const size_t n = right.size();
  const auto at = [&](size_t i, size_t j) -> double& { return matrix[i * n + j]; };
  for (size_t i = 0; i < n; ++i) {
    at(i, i) += penalty;
    for (size_t j = 0; j <= i; ++j) {
      double sum = at(i, j);
      for (size_t k = 0; k < j; ++k) sum -= at(i, k) * at(j, k);
      at(i, j) = i == j ? std::sqrt(std::max(sum, penalty)) : sum / at(j, j);
    }
  }
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < i; ++k) right[i] -= at(i, k) * right[k];
    right[i] /= at(i, i);
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t k = i + 1; k < n; ++k) right[i] -= at(k, i) * right[k];
    right[i] /= at(i, i);
  }
  return right;
}

}  // namespace

Svm::Svm(std::span<const Features> points, std::span<const int> classes, double gamma)
    : points_(points.begin(), points.end()), gamma_(gamma) {
  const size_t n = points.size();
  CHECK(classes.size() == n && std::count(classes.begin(), classes.end(), 1) > 0 &&
            std::count(classes.begin(), classes.end(), -1) > 0,
        "{} points, {} classes", n, classes.size());
  Smo smo{.classes = classes,
          .kernel = std::vector<double>(n * n),
          .a = std::vector<double>(n),
          .slope = std::vector<double>(n, -1)};
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) smo.kernel[i * n + j] = gaussian(points[i], points[j], gamma);
  }
  Smo::Pair pair = smo.worst();
  for (size_t steps = 0; pair.high - pair.low > kAccuracy && steps < 1000 * n; ++steps) {
    smo.move(pair);
    pair = smo.worst();
  }
  offset_ = (pair.high + pair.low) / 2;
  multipliers_ = std::move(smo.a);
  weights_.resize(n);
  for (size_t i = 0; i < n; ++i) weights_[i] = multipliers_[i] * classes[i];
}

double Svm::margin(const Features& x) const {
  double sum = offset_;
  for (size_t i = 0; i < points_.size(); ++i) {
    if (weights_[i] != 0) sum += weights_[i] * gaussian(points_[i], x, gamma_);
  }
  return sum;
}

Ridge::Ridge(std::span<const Features> points, std::span<const double> values, double gamma)
    : points_(points.begin(), points.end()), gamma_(gamma) {
  const size_t n = points.size();
  CHECK(n > 0 && values.size() == n, "{} points, {} values", n, values.size());
  mean_ = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(n);
  std::vector<double> matrix(n * n), right(n);
  for (size_t i = 0; i < n; ++i) {
    right[i] = values[i] - mean_;
    for (size_t j = 0; j < n; ++j) matrix[i * n + j] = kernel(points[i], points[j]);
  }
  weights_ = solved(std::move(matrix), std::move(right), kPenalty);
}

double Ridge::kernel(const Features& a, const Features& b) const {
  return 1 + std::inner_product(a.begin(), a.end(), b.begin(), 0.0) + gaussian(a, b, gamma_);
}

double Ridge::at(const Features& x) const {
  double sum = mean_;
  for (size_t i = 0; i < points_.size(); ++i) sum += weights_[i] * kernel(points_[i], x);
  return sum;
}

}  // namespace braid::comm
