// For references only: whole tensors as vectors of double, in and out, so that a reference is written once as a
// template that reads like the formula and runs in double, or in complex<double> for the gradient check. References
// allocate; fast rows do not.
#pragma once
#include <complex>
#include <vector>

#include "core/view.h"

namespace braid {

inline std::vector<double> to_doubles(const View& v) {
  std::vector<double> out(static_cast<size_t>(v ? v.count() : 0));
  for (size_t i = 0; i < out.size(); ++i) out[i] = element(v, static_cast<int64_t>(i));
  return out;
}

inline void store(const MutView& v, const std::vector<double>& values) {
  if (!v) return;
  for (int64_t i = 0; i < v.count(); ++i) set_element(v, i, values[static_cast<size_t>(i)]);
}

inline void accumulate(const MutView& v, const std::vector<double>& values) {
  if (!v) return;
  for (int64_t i = 0; i < v.count(); ++i) set_element(v, i, element(v, i) + values[static_cast<size_t>(i)]);
}

// dL/dp for every p of `inputs` by complex step: Im L(p + i h) / h has no cancellation, so h can be tiny and the result
// is exact to rounding. `loss` maps complex inputs to a complex number.
template <class Loss>
std::vector<double> complex_step(const std::vector<double>& inputs, Loss&& loss) {
  constexpr double h = 1e-50;
  std::vector<std::complex<double>> z(inputs.begin(), inputs.end());
  std::vector<double> gradient(inputs.size());
  for (size_t i = 0; i < z.size(); ++i) {
    z[i].imag(h);
    gradient[i] = std::imag(loss(z)) / h;
    z[i].imag(0);
  }
  return gradient;
}

}  // namespace braid
