// The formula of hidden_loss.h, for double and complex<double>.
#pragma once
#include <cmath>
#include <complex>
#include <cstddef>
#include <vector>

namespace braid {

template <class Num>
Num hidden_loss_ref(const std::vector<Num>& x, const std::vector<double>& y) {
  Num product(0), squares(0);
  double teacher = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    product += x[i] * y[i];
    squares += x[i] * x[i];
    teacher += y[i] * y[i];
  }
  if (std::real(squares) == 0 || teacher == 0) return Num(1);
  return Num(1) - product / (std::sqrt(squares) * std::sqrt(teacher));
}

}  // namespace braid
