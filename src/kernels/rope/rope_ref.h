// The formulas of rope.h.
#pragma once
#include <cmath>
#include <cstdint>

namespace braid {

// One head: x [P], cos and sin [half] of its position.
template <class Num>
void rope_ref(int64_t half, const double* cos, const double* sin, Num* x) {
  for (int64_t i = 0; i < half; ++i) {
    const Num a = x[i], b = x[i + half];
    x[i] = a * cos[i] - b * sin[i];
    x[i + half] = b * cos[i] + a * sin[i];
  }
}

}  // namespace braid
