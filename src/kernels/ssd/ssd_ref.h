// The recurrence of ssd.h token by token, for double and complex<double>. Clamps branch on the real part.
#pragma once
#include <algorithm>
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
  return std::real(v) < -18 ? e * (Num(1) - Num(0.5) * e) : std::log(Num(1) + e);  // log1p has no complex overload
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

// Gradients of one sequence, accumulated; laid out like their operands.
struct SsdGradients {
  std::vector<double> x{}, b{}, c{}, dt{}, dt_bias{}, a_log{}, d_skip{};
};

// Rows [begin, end) of one sequence and one head. `state` [P, N] is the one before; `left` [P, N] is the gradient of
// the state after on entry, of the state before on return. With G the gradient of S_t:
//   G += dy_t (x) c_t        dc_t += S_t' dy_t       db_t += d_t G' x_t      dx_t = d_skip dy_t + d_t G b_t
//   d(d_t) = x_t' G b_t + a u      d(a) += d_t u     with u = exp(d_t a) <G, S_{t-1}>     G *= exp(d_t a)
inline void ssd_bwd_ref(const SsdShape& shape, int64_t begin, int64_t end, int64_t h, const std::vector<double>& dy,
                        const std::vector<double>& x, const std::vector<double>& b, const std::vector<double>& c,
                        const std::vector<double>& dt, double dt_bias, double a_log, double d_skip,
                        std::span<const double> state, std::span<double> left, SsdGradients& d) {
  const int64_t width = shape.width, states = shape.states, group = h / (shape.heads / shape.groups);
  const double a = -std::exp(a_log);
  const auto raw = [&](int64_t t) { return dt[static_cast<size_t>(t * shape.heads + h)] + dt_bias; };
  const auto step = [&](int64_t t) { return std::clamp(softplus_ref(raw(t)), shape.dt_min, shape.dt_max); };
  const size_t size = state.size();
  std::vector<double> kept(state.begin(), state.end());  // [1 + tokens, P, N]
  for (int64_t t = begin; t < end; ++t) {
    for (size_t i = 0; i < size; ++i) {
      const int64_t p = static_cast<int64_t>(i) / states, n = static_cast<int64_t>(i) % states;
      kept.push_back(std::exp(step(t) * a) * kept[kept.size() - size] +
                     step(t) * x[static_cast<size_t>((t * shape.heads + h) * width + p)] *
                         b[static_cast<size_t>((t * shape.groups + group) * states + n)]);
    }
  }
  for (int64_t t = end - 1; t >= begin; --t) {
    const double *before = kept.data() + static_cast<size_t>(t - begin) * size, *after = before + size;
    const double decay = std::exp(step(t) * a);
    double along = 0, through = 0;  // x' G b and <G, S_{t-1}>
    for (int64_t p = 0; p < width; ++p) {
      const auto at = static_cast<size_t>((t * shape.heads + h) * width + p);
      double from = 0;
      for (int64_t n = 0; n < states; ++n) {
        const auto bc = static_cast<size_t>((t * shape.groups + group) * states + n);
        double& g = left[static_cast<size_t>(p * states + n)];
        g += dy[at] * c[bc];
        d.c[bc] += dy[at] * after[p * states + n];
        d.b[bc] += step(t) * g * x[at];
        from += g * b[bc];
        through += g * before[p * states + n];
        g *= decay;
      }
      d.x[at] = d_skip * dy[at] + step(t) * from;
      d.d_skip[static_cast<size_t>(h)] += dy[at] * x[at];
      along += x[at] * from;
    }
    const double free = softplus_ref(raw(t));
    const bool clamped = free < shape.dt_min || free > shape.dt_max;
    const double slope = clamped ? 0 : (along + a * decay * through) / (1 + std::exp(-raw(t)));
    d.dt[static_cast<size_t>(t * shape.heads + h)] = slope;
    d.dt_bias[static_cast<size_t>(h)] += slope;
    d.a_log[static_cast<size_t>(h)] += a * step(t) * decay * through;
  }
}

}  // namespace braid
