// The recurrence of ssd.h token by token, for double and complex<double>. Clamps branch on the real part.
#pragma once
#include <cmath>
#include <complex>
#include <cstdint>
#include <span>
#include <vector>

namespace braid {

struct SsdShape {
  int64_t heads = 0, width = 0, groups = 0, states = 0;  // H, P, G, N
  double dt_min = 0, dt_max = 0;
};

template <class Num>
Num softplus_ref(Num v) {
  if (std::real(v) > 20) return v;
  const Num e = std::exp(v);
  return std::real(v) < -18 ? e * (Num(1) - Num(0.5) * e) : std::log(Num(1) + e);  // log1p knows no complex numbers
}

// Rows [begin, end) of one sequence: x [T, H, P], b, c [T, G, N], dt [T, H], state [H, P, N] in place -> y [T, H, P].
template <class Num>
void ssd_ref(const SsdShape& shape, int64_t begin, int64_t end, const std::vector<Num>& x, const std::vector<Num>& b,
             const std::vector<Num>& c, const std::vector<Num>& dt, const std::vector<Num>& dt_bias,
             const std::vector<Num>& a_log, const std::vector<Num>& d_skip, std::span<Num> state, std::vector<Num>& y) {
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      const auto head = static_cast<size_t>(h);
      const int64_t group = h / (shape.heads / shape.groups);  // neighbouring heads share a group
      Num d = softplus_ref(dt[static_cast<size_t>(t * shape.heads + h)] + dt_bias[head]);
      if (std::real(d) < shape.dt_min) d = Num(shape.dt_min);
      if (std::real(d) > shape.dt_max) d = Num(shape.dt_max);
      const Num decay = std::exp(-d * std::exp(a_log[head]));
      for (int64_t p = 0; p < shape.width; ++p) {
        const auto at = static_cast<size_t>((t * shape.heads + h) * shape.width + p);
        Num sum = d_skip[head] * x[at];
        for (int64_t n = 0; n < shape.states; ++n) {
          const auto bc = static_cast<size_t>((t * shape.groups + group) * shape.states + n);
          Num& s = state[static_cast<size_t>((h * shape.width + p) * shape.states + n)];
          s = decay * s + d * x[at] * b[bc];
          sum += s * c[bc];
        }
        y[at] = sum;
      }
    }
  }
}

}  // namespace braid
