// The experts of a mixture, tokens grouped by expert (nemotron.md 3.7):
//   y_t = sum_j weights[t, j] * down_e( act(up_e x_t) ),  e = experts[t, j]
//   act(u) = max(u, 0)^2  or  silu(u);  with gates: act(gate_e x_t) * (up_e x_t)
// x names the numerics class (math/panel.h). Products are summed in FP32; the activation is computed in FP32 and
// rounded to the dtype of x before the down product; weighting and summing over j are in FP32, in slot order. A token's
// result depends on its row, its experts and their weights alone, never on what else is in the batch.
// An index outside [0, E) is a bug of the caller. Not all experts are read: bytes_of() counts those nobody chose too.
// Inference only: backward comes with training.
#pragma once
#include "core/op.h"

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
  ExpertAct act = ExpertAct::relu2;
  static constexpr const char* name = "experts_fwd";
  static constexpr auto fields() {
    return std::tuple{in("x", &ExpertsFwd::x, "T R"),
                      in("experts", &ExpertsFwd::experts, "T K"),
                      in("weights", &ExpertsFwd::weights, "T K"),
                      in("up", &ExpertsFwd::up, "E F R"),
                      maybe("gate", &ExpertsFwd::gate, "E F R"),
                      in("down", &ExpertsFwd::down, "E R F"),
                      out("y", &ExpertsFwd::y, "T R")};
  }
  double flops() const {
    const auto weight = static_cast<double>(up[0].rows) * static_cast<double>(up[0].cols);
    return 2.0 * static_cast<double>(experts.count()) * weight * (gate.empty() ? 2 : 3);
  }
  static std::span<const Row<ExpertsFwd>> rows();
};

}  // namespace braid
