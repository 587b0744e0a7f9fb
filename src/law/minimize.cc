#include "law/minimize.h"

#include <cmath>
#include <limits>

namespace braid::law {
namespace {

template <size_t N>
using VectorOf = std::array<double, N>;
template <size_t N>
using Matrix = std::array<VectorOf<N>, N>;

template <size_t N>
double dot(const VectorOf<N>& a, const VectorOf<N>& b) {
  double sum = 0;
  for (size_t i = 0; i < N; ++i) sum += a[i] * b[i];
  return sum;
}

template <size_t N>
VectorOf<N> times(const Matrix<N>& m, const VectorOf<N>& v) {
  VectorOf<N> out{};
  for (size_t i = 0; i < N; ++i) out[i] = dot(m[i], v);
  return out;
}

template <size_t N>
Matrix<N> scaled_identity(double scale) {
  Matrix<N> m{};
  for (size_t i = 0; i < N; ++i) m[i][i] = scale;
  return m;
}

template <size_t N>
struct Point {
  VectorOf<N> x{}, gradient{};
  double value = 0;
};

// H := (I - s y'/s'y) H (I - y s'/s'y) + s s'/s'y
template <size_t N>
void update(Matrix<N>& inverse, const VectorOf<N>& s, const VectorOf<N>& y, bool first) {
  const double curvature = dot(s, y);
  if (!(curvature > 0)) return;
  if (first) inverse = scaled_identity<N>(curvature / dot(y, y));
  const VectorOf<N> hy = times(inverse, y);
  const double factor = (1 + dot(y, hy) / curvature) / curvature;
  for (size_t i = 0; i < N; ++i)
    for (size_t j = 0; j < N; ++j) inverse[i][j] += factor * s[i] * s[j] - (hy[i] * s[j] + s[i] * hy[j]) / curvature;
}

}  // namespace

template <size_t N>
MinimumOf<N> minimize(std::type_identity_t<Slope<N>> function, const std::array<double, N>& start, int steps_max) {
  constexpr double kDecrease = 1e-4, kCurvature = 0.9, kFlat = 1e-13;
  constexpr int kHalvingsMax = 60, kStallsMax = 5;
  const auto evaluate = [&](const VectorOf<N>& x) {
    Point<N> p{.x = x};
    p.value = function(x, p.gradient);
    if (!std::isfinite(p.value) || !std::isfinite(dot(p.gradient, p.gradient)))
      p.value = std::numeric_limits<double>::infinity();
    return p;
  };
  Point<N> now = evaluate(start);
  if (!std::isfinite(now.value)) return {now.x, now.value};
  Matrix<N> inverse = scaled_identity<N>(0.1 / std::sqrt(dot(now.gradient, now.gradient) + 1e-300));
  for (int step = 0, stalls = 0; step < steps_max && stalls < kStallsMax; ++step) {
    VectorOf<N> direction = times(inverse, now.gradient);
    for (double& d : direction) d = -d;
    const double slope = dot(direction, now.gradient);
    if (!(slope < 0)) break;
    // low satisfies the decrease, high does not; doubled until there is a high, then halved.
    double low = 0, high = std::numeric_limits<double>::infinity(), length = 1;
    Point<N> next;
    bool found = false;
    for (int i = 0; i < kHalvingsMax && !found; ++i) {
      VectorOf<N> x = now.x;
      for (size_t k = 0; k < N; ++k) x[k] += length * direction[k];
      next = evaluate(x);
      if (!(next.value <= now.value + kDecrease * length * slope)) {
        high = length;
      } else if (dot(next.gradient, direction) < kCurvature * slope) {
        low = length;
      } else {
        found = true;
        break;
      }
      length = std::isinf(high) ? 2 * low : 0.5 * (low + high);
    }
    if (!found) break;  // at the precision of the values
    stalls = now.value - next.value <= kFlat * std::fabs(now.value) ? stalls + 1 : 0;
    VectorOf<N> s{}, y{};
    for (size_t k = 0; k < N; ++k) {
      s[k] = next.x[k] - now.x[k];
      y[k] = next.gradient[k] - now.gradient[k];
    }
    update(inverse, s, y, step == 0);
    now = next;
  }
  return {now.x, now.value};
}

template MinimumOf<kVariables> minimize<kVariables>(Slope<kVariables>, const Vector&, int);
template MinimumOf<9> minimize<9>(Slope<9>, const VectorOf<9>&, int);

}  // namespace braid::law
