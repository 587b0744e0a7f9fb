// The formula of experts.h: a loop over (token, slot), for double and complex<double>.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

namespace braid {

template <class Num>
Num expert_act_ref(Num u, bool silu) {
  if (silu) return u / (Num(1) + std::exp(-u));
  return std::real(u) > 0 ? u * u : Num(0);
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

}  // namespace braid
