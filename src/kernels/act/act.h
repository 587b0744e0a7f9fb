// Activations of the MLPs (nemotron.md 3.5), with or without a gate:
//   y = act(x)   or   y = act(gate) * x        (SwiGLU: x is the up projection, gate the gate projection)
// relu2(v) = max(v, 0)^2, silu(v) = v / (1 + e^-v), gelu(v) = v (1 + erf(v / sqrt 2)) / 2, gelu_tanh its tanh form.
// Computed in FP32; y in its own dtype, and may be x or gate. Inference only: backward comes with training.
#pragma once
#include "core/op.h"

namespace braid {

enum class Act : uint8_t { relu2, silu, gelu_tanh, gelu };

struct ActFwd {
  View x{};     // [T, F] F32 or BF16
  View gate{};  // [T, F] F32 or BF16, or empty
  MutView y{};  // [T, F] F32 or BF16
  Act kind = Act::relu2;
  static constexpr const char* name = "act_fwd";
  static constexpr auto fields() {
    return std::tuple{in("x", &ActFwd::x, "T F"), maybe("gate", &ActFwd::gate, "T F"), out("y", &ActFwd::y, "T F")};
  }
  double flops() const { return static_cast<double>(x.count()) * ((kind == Act::relu2 ? 2 : 10) + (gate ? 1 : 0)); }
  static std::span<const Row<ActFwd>> rows();
};

}  // namespace braid
