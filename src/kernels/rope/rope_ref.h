// The formulas of rope.h.
#pragma once
#include <cmath>
#include <cstdint>

namespace braid {

// One head: x [P], cos and sin [half] of its position.
template <class Num>
void rope_ref(int64_t half, bool adjacent, const double* cos, const double* sin, Num* x) {
  for (int64_t i = 0; i < half; ++i) {
    Num &first = x[adjacent ? 2 * i : i], &second = x[adjacent ? 2 * i + 1 : i + half];
    const Num a = first, b = second;
    first = a * cos[i] - b * sin[i];
    second = b * cos[i] + a * sin[i];
  }
}

}  // namespace braid
