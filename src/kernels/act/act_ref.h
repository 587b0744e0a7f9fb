// The formulas of act.h.
#pragma once
#include <cmath>
#include <numbers>

#include "kernels/act/act.h"

namespace braid {

inline double act_ref(Act kind, double v) {
  switch (kind) {
    case Act::relu2:
      return v > 0 ? v * v : 0;
    case Act::silu:
      return v / (1 + std::exp(-v));
    case Act::gelu:
      return v * (1 + std::erf(v / std::numbers::sqrt2)) / 2;
    case Act::gelu_tanh:
      return v * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v))) / 2;
  }
  return 0;
}

}  // namespace braid
