// The formulas of act.h.
#pragma once
#include <cmath>
#include <complex>
#include <numbers>

#include "kernels/act/act.h"

namespace braid {

// erf of a complex number whose imaginary part is infinitesimal: what a complex step needs.
inline double erf_of(double v) { return std::erf(v); }
inline std::complex<double> erf_of(std::complex<double> v) {
  const double slope = 2 / std::sqrt(std::numbers::pi) * std::exp(-v.real() * v.real());
  return {std::erf(v.real()), slope * v.imag()};
}

template <class Num>
Num act_ref(Act kind, Num v) {
  switch (kind) {
    case Act::relu2:
      return std::real(v) <= 0 ? Num(0) : v * v;  // NaN of NaN
    case Act::silu:
      return v / (1.0 + std::exp(-v));
    case Act::gelu:
      return v * (1.0 + erf_of(v / std::numbers::sqrt2)) / 2.0;
    case Act::gelu_tanh:
      return v * (1.0 + std::tanh(std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v))) / 2.0;
    case Act::relu:
      return std::real(v) <= 0 ? Num(0) : v;
    case Act::elu:
      return std::real(v) <= 0 ? std::exp(v) - 1.0 : v;
  }
  return Num(0);
}

// act'(v)
inline double act_slope_ref(Act kind, double v) {
  switch (kind) {
    case Act::relu2:
      return v <= 0 ? 0 : 2 * v;
    case Act::silu: {
      const double s = 1 / (1 + std::exp(-v));
      return s * (1 + v * (1 - s));
    }
    case Act::gelu:
      return (1 + std::erf(v / std::numbers::sqrt2)) / 2 + v * std::exp(-v * v / 2) / std::sqrt(2 * std::numbers::pi);
    case Act::gelu_tanh: {
      const double c = std::sqrt(2 / std::numbers::pi), t = std::tanh(c * (v + 0.044715 * v * v * v));
      return (1 + t) / 2 + v * (1 - t * t) * c * (1 + 3 * 0.044715 * v * v) / 2;
    }
    case Act::relu:
      return v <= 0 ? 0 : v > 0 ? 1 : v;  // NaN of NaN
    case Act::elu:
      return v <= 0 ? std::exp(v) : v > 0 ? 1 : v;
  }
  return 0;
}

}  // namespace braid
