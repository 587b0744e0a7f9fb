// The formula of conv1d.h, for double and complex<double>.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace braid {

// One sequence: x [T, C], w [C, W], bias [C] (empty: none), state [W-1, C] in place -> y [T, C].
template <class Num>
void conv1d_ref(int64_t tokens, int64_t channels, int64_t width, bool silu, std::span<const Num> x,
                const std::vector<Num>& w, const std::vector<Num>& bias, std::span<Num> state, std::span<Num> y) {
  const auto at = [&](int64_t row, int64_t c) { return static_cast<size_t>(row * channels + c); };
  std::vector<Num> line(state.begin(), state.end());  // [W-1+T, C]: the state, then x
  line.insert(line.end(), x.begin(), x.end());
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t c = 0; c < channels; ++c) {
      Num a = bias.empty() ? Num(0) : bias[static_cast<size_t>(c)];
      for (int64_t j = 0; j < width; ++j) a += w[static_cast<size_t>(c * width + j)] * line[at(t + j, c)];
      y[at(t, c)] = silu ? a / (Num(1) + std::exp(-a)) : a;
    }
  }
  for (size_t i = 0; i < state.size(); ++i) state[i] = line[at(tokens, 0) + i];
}

// One sequence that starts from zeros. With a as above: da = dy silu'(a); dw[c, j] += sum_t da[t] x[t-(W-1)+j];
// dbias += sum_t da[t]; dx[t] = sum_j w[c, j] da[t+(W-1)-j].
inline void conv1d_bwd_ref(int64_t tokens, int64_t channels, int64_t width, bool silu, std::span<const double> dy,
                           std::span<const double> x, const std::vector<double>& w, const std::vector<double>& bias,
                           std::span<double> dx, std::vector<double>& dw, std::vector<double>& dbias) {
  const auto at = [&](int64_t row, int64_t c) { return static_cast<size_t>(row * channels + c); };
  for (double& v : dx) v = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t c = 0; c < channels; ++c) {
      const int64_t first = std::max<int64_t>(0, width - 1 - t);  // the tap of the sequence's first input
      double a = bias.empty() ? 0 : bias[static_cast<size_t>(c)];
      for (int64_t j = first; j < width; ++j) a += w[static_cast<size_t>(c * width + j)] * x[at(t + j + 1 - width, c)];
      const double s = 1 / (1 + std::exp(-a)), da = dy[at(t, c)] * (silu ? s * (1 + a * (1 - s)) : 1);
      dbias[static_cast<size_t>(c)] += da;
      for (int64_t j = first; j < width; ++j) {
        dw[static_cast<size_t>(c * width + j)] += da * x[at(t + j + 1 - width, c)];
        dx[at(t + j + 1 - width, c)] += da * w[static_cast<size_t>(c * width + j)];
      }
    }
  }
}

}  // namespace braid
