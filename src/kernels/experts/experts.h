// The experts of a mixture-of-experts layer, tokens grouped by expert (docs/internals/layers.md, Experts):
//   y_t = sum_j weights[t, j] * down_e( act(up_e x_t) ),  e = experts[t, j]
//   act(u) = max(u, 0)^2  or  silu(u);  with gates: act(gate_e x_t) * (up_e x_t)
// x names the numerics class (math/panel.h). Products are summed in FP32; the activation is computed in FP32 and
// rounded to the dtype of x before the down product; weighting and summing over j are in FP32, in slot order. A token's
// result depends only on its row, its experts and their weights, never on the rest of the batch.
// Expert -1: the slot was dropped. It adds nothing, its rows of u and g are not written, and its dweights is 0.
// Any other index outside [0, E) is a caller bug. bytes_of() counts all experts, although only the chosen ones are
// read.
//
// Backward, with q = down_e^T dy_t and h the activation:
//   dweights[t, j] = q . h,   du = weights[t, j] q * act'(u)   (with gates: du, dgate from the product rule)
//   dx_t = sum_j up_e^T du + gate_e^T dgate
//   dup_e += du x_t^T,  ddown_e += weights[t, j] dy_t h^T     in token order: cuts between sequences change no bit
// It needs the products u (and g with gates), [T, K, F] by (token, slot). Unless forward saved them they are
// recomputed, at a third of backward's FLOPs. With BF16 x they are rounded to BF16 either way, with the same bits.
#pragma once
#include "core/numerics.h"
#include "core/op.h"
#include "core/seq_map.h"

namespace braid {

enum class ExpertAct : uint8_t { relu2, silu };

struct ExpertsFwd {
  View x{};                        // [T, R] F32 or BF16
  View experts{};                  // [T, K] I32
  View weights{};                  // [T, K] F32
  std::span<const Weight> up{};    // E of [F, R], any format
  std::span<const Weight> gate{};  // E of [F, R], or empty
  std::span<const Weight> down{};  // E of [R, F]
  MutView y{};                     // [T, R] F32 or BF16
  MutView u{}, g{};                // [T, K, F] products of up and gate, in the dtype of x
  ExpertAct act = ExpertAct::relu2;
  bool train = false;               // as LinearFwd::train: many rows, with weights of this step only
  CodeDots codes = CodeDots::none;  // as LinearFwd::codes
  static constexpr const char* name = "experts_fwd";
  static constexpr auto fields() {
    return std::tuple{in("x", &ExpertsFwd::x, "T R"),
                      in("experts", &ExpertsFwd::experts, "T K"),
                      in("weights", &ExpertsFwd::weights, "T K"),
                      in("up", &ExpertsFwd::up, "E F R"),
                      maybe("gate", &ExpertsFwd::gate, "E F R"),
                      in("down", &ExpertsFwd::down, "E R F"),
                      out("y", &ExpertsFwd::y, "T R"),
                      optional_out("u", &ExpertsFwd::u, "T K F"),
                      optional_out("g", &ExpertsFwd::g, "T K F")};
  }
  double flops() const {
    const auto weight = static_cast<double>(up[0].rows) * static_cast<double>(up[0].cols);
    return 2.0 * static_cast<double>(experts.count()) * weight * (gate.empty() ? 2 : 3);
  }
  static std::span<const Row<ExpertsFwd>> rows();
};

struct ExpertsBwd {
  View dy{};                                         // [T, R] F32 or BF16
  View x{}, experts{}, weights{};                    // as forward had them
  std::span<const Weight> up{}, gate{}, down{};      // as forward had them
  View u{}, g{};                                     // [T, K, F] as forward saved them, or empty: recomputed
  MutView dx{};                                      // [T, R] F32
  MutView dweights{};                                // [T, K] F32
  std::span<const MutView> dup{}, dgate{}, ddown{};  // E of [F, R], [F, R], [R, F] F32, accumulate; empty: frozen
  const SeqMap* seqs = nullptr;                      // null: one sequence
  ExpertAct act = ExpertAct::relu2;
  bool train = false;  // as in forward: u and g that were not saved are recomputed in its class
  static constexpr const char* name = "experts_bwd";
  static constexpr auto fields() {
    return std::tuple{in("dy", &ExpertsBwd::dy, "T R"),
                      in("x", &ExpertsBwd::x, "T R"),
                      in("experts", &ExpertsBwd::experts, "T K"),
                      in("weights", &ExpertsBwd::weights, "T K"),
                      in("up", &ExpertsBwd::up, "E F R"),
                      maybe("gate", &ExpertsBwd::gate, "E F R"),
                      in("down", &ExpertsBwd::down, "E R F"),
                      maybe("u", &ExpertsBwd::u, "T K F"),
                      maybe("g", &ExpertsBwd::g, "T K F"),
                      out("dx", &ExpertsBwd::dx, "T R"),
                      out("dweights", &ExpertsBwd::dweights, "T K"),
                      maybe_inout("dup", &ExpertsBwd::dup, "E F R"),
                      maybe_inout("dgate", &ExpertsBwd::dgate, "E F R"),
                      maybe_inout("ddown", &ExpertsBwd::ddown, "E R F")};
  }
  double flops() const {
    const auto weight = static_cast<double>(up[0].rows) * static_cast<double>(up[0].cols);
    const int data = gate.empty() ? 2 : 3, again = u ? 0 : data - 1;
    const int weights_of = (dup.empty() ? 0 : 1) + (dgate.empty() ? 0 : 1) + (ddown.empty() ? 0 : 1);
    return 2.0 * static_cast<double>(experts.count()) * weight * (data + again + weights_of);
  }
  static std::span<const Row<ExpertsBwd>> rows();
};

}  // namespace braid
