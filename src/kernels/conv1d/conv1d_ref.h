// The formula of conv1d.h, for double and complex<double>.
#pragma once
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
  std::vector<Num> line(state.begin(), state.end());  // [W-1+T, C]: what came before, then x
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

}  // namespace braid
