// The formulas of layer_norm.h: forward for double and complex<double>.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

namespace braid {

// x [T, D], w [D], bias [D] or empty -> y [T, D], mean and rstd [T]
template <class Num>
void layer_norm_ref(int64_t tokens, int64_t width, double eps, const std::vector<Num>& x, const std::vector<Num>& w,
                    const std::vector<Num>& bias, std::vector<Num>& y, std::vector<Num>& mean, std::vector<Num>& rstd) {
  const Num count(static_cast<double>(width));
  for (int64_t t = 0; t < tokens; ++t) {
    const auto at = static_cast<size_t>(t * width), row = static_cast<size_t>(t), size = static_cast<size_t>(width);
    Num sum(0), squares(0);
    for (size_t i = 0; i < size; ++i) sum += x[at + i];
    mean[row] = sum / count;
    for (size_t i = 0; i < size; ++i) squares += (x[at + i] - mean[row]) * (x[at + i] - mean[row]);
    rstd[row] = Num(1) / std::sqrt(squares / count + Num(eps));
    for (size_t i = 0; i < size; ++i) {
      y[at + i] = (x[at + i] - mean[row]) * rstd[row] * w[i] + (bias.empty() ? Num(0) : bias[i]);
    }
  }
}

struct LayerNormGrads {
  std::vector<double> dx, dw, dbias;  // [T, D], [D], [D]
};

inline LayerNormGrads layer_norm_bwd_ref(int64_t tokens, int64_t width, double eps, const std::vector<double>& x,
                                         const std::vector<double>& w, const std::vector<double>& dy) {
  const auto size = static_cast<size_t>(width);
  std::vector<double> y(x.size()), mean(static_cast<size_t>(tokens)), rstd(mean.size());
  layer_norm_ref(tokens, width, eps, x, w, {}, y, mean, rstd);
  LayerNormGrads grads{std::vector<double>(x.size()), std::vector<double>(size), std::vector<double>(size)};
  for (size_t t = 0; t < mean.size(); ++t) {
    const auto xhat = [&](size_t i) { return (x[t * size + i] - mean[t]) * rstd[t]; };
    double sum = 0, dot = 0;
    for (size_t i = 0; i < size; ++i) {
      const double d = dy[t * size + i];
      sum += d * w[i] / static_cast<double>(width);
      dot += d * w[i] * xhat(i) / static_cast<double>(width);
      grads.dw[i] += d * xhat(i);
      grads.dbias[i] += d;
    }
    for (size_t i = 0; i < size; ++i)
      grads.dx[t * size + i] = rstd[t] * (dy[t * size + i] * w[i] - sum - xhat(i) * dot);
  }
  return grads;
}

}  // namespace braid
