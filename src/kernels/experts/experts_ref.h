// The formulas of experts.h for one (token, slot): forward for double and complex<double>, backward for double.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace braid {

template <class Num>
Num expert_act_ref(Num u, bool silu) {
  if (silu) return u / (Num(1) + std::exp(-u));
  return std::real(u) <= 0 ? Num(0) : u * u;  // NaN propagates
}

// w [rows, cols] times v [cols]
template <class Num>
std::vector<Num> matrix_vector_ref(const std::vector<Num>& w, const std::vector<Num>& v) {
  std::vector<Num> y(w.size() / v.size());
  for (size_t i = 0; i < y.size(); ++i) {
    for (size_t k = 0; k < v.size(); ++k) y[i] += w[i * v.size() + k] * v[k];
  }
  return y;
}

// One expert of one token: x [R] -> [R]. `gate` is empty for experts without one.
template <class Num>
std::vector<Num> expert_ref(const std::vector<Num>& x, const std::vector<Num>& up, const std::vector<Num>& gate,
                            const std::vector<Num>& down, bool silu) {
  std::vector<Num> hidden = matrix_vector_ref(up, x);
  const std::vector<Num> gates = gate.empty() ? std::vector<Num>() : matrix_vector_ref(gate, x);
  for (size_t f = 0; f < hidden.size(); ++f)
    hidden[f] = gate.empty() ? expert_act_ref(hidden[f], silu) : expert_act_ref(gates[f], silu) * hidden[f];
  return matrix_vector_ref(down, hidden);
}

inline double expert_act_slope_ref(double u, bool silu) {
  const double s = 1 / (1 + std::exp(-u));
  return silu ? s * (1 + u * (1 - s)) : 2 * std::max(u, 0.0);
}

// w [rows, cols] transposed, times v [rows]
inline std::vector<double> transposed_vector_ref(const std::vector<double>& w, const std::vector<double>& v) {
  std::vector<double> y(w.size() / v.size());
  for (size_t i = 0; i < v.size(); ++i) {
    for (size_t k = 0; k < y.size(); ++k) y[k] += w[i * y.size() + k] * v[i];
  }
  return y;
}

// Results of one (token, slot): the gradients of its weight, of u [F] and g [F], and its hidden row [F].
struct ExpertSlotGradient {
  double dweight = 0;
  std::vector<double> du, dg, hidden;
};

// dy [R], u and g [F]: the products of up and gate; g is empty for experts without one.
inline ExpertSlotGradient expert_bwd_ref(const std::vector<double>& dy, double weight, const std::vector<double>& u,
                                         const std::vector<double>& g, const std::vector<double>& down, bool silu) {
  const std::vector<double> q = transposed_vector_ref(down, dy);
  ExpertSlotGradient out{.dweight = 0, .du = u, .dg = g, .hidden = u};
  for (size_t f = 0; f < u.size(); ++f) {
    const double a = g.empty() ? u[f] : g[f], slope = expert_act_slope_ref(a, silu), value = expert_act_ref(a, silu);
    out.hidden[f] = g.empty() ? value : value * u[f];
    out.dweight += q[f] * out.hidden[f];
    out.du[f] = weight * q[f] * (g.empty() ? slope : value);
    if (!g.empty()) out.dg[f] = weight * q[f] * slope * u[f];
  }
  return out;
}

}  // namespace braid
