// Activations of the MLPs (docs/internals/layers.md, MLP), with or without a gate:
//   y = act(x)   or   y = act(gate) * x        (SwiGLU: x is the up projection, gate the gate projection)
// relu2(v) = max(v, 0)^2, silu(v) = v / (1 + e^-v), gelu(v) = v (1 + erf(v / sqrt 2)) / 2, gelu_tanh its tanh form,
// relu(v) = max(v, 0), elu(v) = v, below 0 e^v - 1.
// Computed in FP32; y in its own dtype, and may be x or gate. Backward recomputes everything from x and gate:
//   dx = dy act'(x)   or   dx = dy act(gate), dgate = dy x act'(gate)
#pragma once
#include "core/op.h"

namespace braid {

enum class Act : uint8_t { relu2, silu, gelu_tanh, gelu, relu, elu };

struct ActFwd {
  View x{};     // [T, F] F32 or BF16
  View gate{};  // [T, F] F32 or BF16, or empty
  MutView y{};  // [T, F] F32 or BF16
  Act kind = Act::relu2;
  static constexpr const char* name = "act_fwd";
  static constexpr auto fields() {
    return std::tuple{in("x", &ActFwd::x, "T F"), maybe("gate", &ActFwd::gate, "T F"), out("y", &ActFwd::y, "T F")};
  }
  double flops() const {
    return static_cast<double>(x.count()) * ((kind == Act::relu2 || kind == Act::relu ? 2 : 10) + (gate ? 1 : 0));
  }
  static std::span<const Row<ActFwd>> rows();
};

struct ActBwd {
  View dy{};        // [T, F] F32 or BF16
  View x{};         // [T, F] F32 or BF16
  View gate{};      // [T, F] F32 or BF16, or empty
  MutView dx{};     // [T, F] F32 or BF16
  MutView dgate{};  // [T, F] F32 or BF16, when there is a gate
  Act kind = Act::relu2;
  static constexpr const char* name = "act_bwd";
  static constexpr auto fields() {
    return std::tuple{in("dy", &ActBwd::dy, "T F"), in("x", &ActBwd::x, "T F"), maybe("gate", &ActBwd::gate, "T F"),
                      out("dx", &ActBwd::dx, "T F"), optional_out("dgate", &ActBwd::dgate, "T F")};
  }
  double flops() const {
    return static_cast<double>(x.count()) * ((kind == Act::relu2 || kind == Act::relu ? 3 : 15) + (gate ? 3 : 0));
  }
  static std::span<const Row<ActBwd>> rows();
};

}  // namespace braid
