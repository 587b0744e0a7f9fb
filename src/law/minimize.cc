#include "law/minimize.h"

#include <cmath>
#include <limits>

namespace braid::law {
namespace {

using Matrix = std::array<Vector, kVariables>;

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < kVariables; ++i) sum += a[i] * b[i];
  return sum;
}

Vector times(const Matrix& m, const Vector& v) {
  Vector out{};
  for (size_t i = 0; i < kVariables; ++i) out[i] = dot(m[i], v);
  return out;
}

Matrix scaled_identity(double scale) {
  Matrix m{};
  for (size_t i = 0; i < kVariables; ++i) m[i][i] = scale;
  return m;
}

struct Point {
  Vector x{}, gradient{};
  double value = 0;
};

// H := (I - s y'/s'y) H (I - y s'/s'y) + s s'/s'y
void update(Matrix& inverse, const Vector& s, const Vector& y, bool first) {
  const double curvature = dot(s, y);
  if (!(curvature > 0)) return;
  if (first) inverse = scaled_identity(curvature / dot(y, y));
  const Vector hy = times(inverse, y);
  const double factor = (1 + dot(y, hy) / curvature) / curvature;
  for (size_t i = 0; i < kVariables; ++i)
    for (size_t j = 0; j < kVariables; ++j)
      inverse[i][j] += factor * s[i] * s[j] - (hy[i] * s[j] + s[i] * hy[j]) / curvature;
}

}  // namespace

Minimum minimize(sys::FunctionRef<double(const Vector& x, Vector& gradient)> function, const Vector& start,
                 int steps_max) {
  constexpr double kDecrease = 1e-4, kCurvature = 0.9, kFlat = 1e-13;
  constexpr int kHalvingsMax = 60, kStallsMax = 5;
  const auto evaluate = [&](const Vector& x) {
    Point p{.x = x};
    p.value = function(x, p.gradient);
    if (!std::isfinite(p.value) || !std::isfinite(dot(p.gradient, p.gradient)))
      p.value = std::numeric_limits<double>::infinity();
    return p;
  };
  Point now = evaluate(start);
  if (!std::isfinite(now.value)) return {now.x, now.value};
  Matrix inverse = scaled_identity(0.1 / std::sqrt(dot(now.gradient, now.gradient) + 1e-300));
  for (int step = 0, stalls = 0; step < steps_max && stalls < kStallsMax; ++step) {
    Vector direction = times(inverse, now.gradient);
    for (double& d : direction) d = -d;
    const double slope = dot(direction, now.gradient);
    if (!(slope < 0)) break;
    // low satisfies the decrease, high does not; doubled until there is a high, then halved.
    double low = 0, high = std::numeric_limits<double>::infinity(), length = 1;
    Point next;
    bool found = false;
    for (int i = 0; i < kHalvingsMax && !found; ++i) {
      Vector x = now.x;
      for (size_t k = 0; k < kVariables; ++k) x[k] += length * direction[k];
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
    Vector s{}, y{};
    for (size_t k = 0; k < kVariables; ++k) {
      s[k] = next.x[k] - now.x[k];
      y[k] = next.gradient[k] - now.gradient[k];
    }
    update(inverse, s, y, step == 0);
    now = next;
  }
  return {now.x, now.value};
}

}  // namespace braid::law
