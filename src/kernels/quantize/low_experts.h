// The experts of a mixture on quantised operands (kernels/experts/experts.h has the formulas and the shapes): each
// expert's rows of the batch are gathered and multiplied separately, as low-precision grouped GEMMs do; each operand is
// quantised from its high-precision values. Experts of a layer share one recipe.
//
// What is summed and in which order depends only on the routes of the batch; memory only on its size. A token must not
// choose an expert twice. Weights are F32 or BF16; with BF16 x, operands are rounded to BF16 once more.
#pragma once
#include "kernels/quantize/quantize.h"

namespace braid {

// Noise streams: expert e uses `stream + 2 e` for gradients of data and the next one for gradients of weights.
struct ExpertNoise {
  uint64_t seed = 0;
  uint32_t up = 0, gate = 0, down = 0;
};

struct LowExpertsFwd {
  View x{};                                      // [T, R] F32 or BF16
  View experts{}, weights{};                     // [T, K] I32, F32
  std::span<const Weight> up{}, gate{}, down{};  // E of [F, R], [F, R] or empty, [R, F]
  MutView y{};                                   // [T, R] F32 or BF16
  ProductSpecs specs{};
  bool silu = false;  // the activation; else relu squared
  static constexpr const char* name = "low_experts_fwd";
  static constexpr auto fields() {
    return std::tuple{in("x", &LowExpertsFwd::x, "T R"),
                      in("experts", &LowExpertsFwd::experts, "T K"),
                      in("weights", &LowExpertsFwd::weights, "T K"),
                      in("up", &LowExpertsFwd::up, "E F R"),
                      maybe("gate", &LowExpertsFwd::gate, "E F R"),
                      in("down", &LowExpertsFwd::down, "E R F"),
                      out("y", &LowExpertsFwd::y, "T R")};
  }
  double flops() const {
    const auto weight = static_cast<double>(up[0].rows) * static_cast<double>(up[0].cols);
    return 2.0 * static_cast<double>(experts.count()) * weight * (gate.empty() ? 2 : 3);
  }
  static std::span<const Row<LowExpertsFwd>> rows();
};

struct LowExpertsBwd {
  View dy{};                                         // [T, R] F32 or BF16
  View x{}, experts{}, weights{};                    // as forward had them
  std::span<const Weight> up{}, gate{}, down{};      // as forward had them
  MutView dx{};                                      // [T, R] F32
  MutView dweights{};                                // [T, K] F32
  std::span<const MutView> dup{}, dgate{}, ddown{};  // E of [F, R], [F, R], [R, F] F32, accumulate; empty: frozen
  ProductSpecs specs{};
  ExpertNoise noise{};
  bool silu = false;
  static constexpr const char* name = "low_experts_bwd";
  static constexpr auto fields() {
    return std::tuple{in("dy", &LowExpertsBwd::dy, "T R"),
                      in("x", &LowExpertsBwd::x, "T R"),
                      in("experts", &LowExpertsBwd::experts, "T K"),
                      in("weights", &LowExpertsBwd::weights, "T K"),
                      in("up", &LowExpertsBwd::up, "E F R"),
                      maybe("gate", &LowExpertsBwd::gate, "E F R"),
                      in("down", &LowExpertsBwd::down, "E R F"),
                      out("dx", &LowExpertsBwd::dx, "T R"),
                      out("dweights", &LowExpertsBwd::dweights, "T K"),
                      maybe_inout("dup", &LowExpertsBwd::dup, "E F R"),
                      maybe_inout("dgate", &LowExpertsBwd::dgate, "E F R"),
                      maybe_inout("ddown", &LowExpertsBwd::ddown, "E R F")};
  }
  double flops() const {
    const auto weight = static_cast<double>(up[0].rows) * static_cast<double>(up[0].cols);
    const int data = gate.empty() ? 2 : 3, again = data - 1;
    const int weights_of = (dup.empty() ? 0 : 1) + (dgate.empty() ? 0 : 1) + (ddown.empty() ? 0 : 1);
    return 2.0 * static_cast<double>(experts.count()) * weight * (data + again + weights_of);
  }
  static std::span<const Row<LowExpertsBwd>> rows();
};

}  // namespace braid
