// How far a student's hidden states point away from a teacher's, and the gradient in the same pass:
//   loss_t = 1 - x_t . y_t / (|x_t| |y_t|)
//   dx_t   = -token_weight_t (y_t / (|x_t| |y_t|) - cos_t x_t / |x_t|^2)
// A token whose weight is 0 has no gradient; of a state that is all zeros the loss is 1 and the gradient 0. The cosine
// ignores the scale, which the next norm takes out anyway.
//   Bercovich et al. 2024 (Puzzle), https://arxiv.org/abs/2411.19146: global knowledge distillation
#pragma once
#include "core/op.h"

namespace braid {

struct HiddenLoss {
  View x{};             // [T, D] F32, the student's
  View y{};             // [T, D] F32, the teacher's
  View token_weight{};  // [T] F32
  MutView loss{};       // [T] F32
  MutView dx{};         // [T, D] F32, or empty
  static constexpr const char* name = "hidden_loss";
  static constexpr auto fields() {
    return std::tuple{in("x", &HiddenLoss::x, "T D"), in("y", &HiddenLoss::y, "T D"),
                      in("token_weight", &HiddenLoss::token_weight, "T"), out("loss", &HiddenLoss::loss, "T"),
                      optional_out("dx", &HiddenLoss::dx, "T D")};
  }
  double flops() const { return static_cast<double>(x.count()) * (dx ? 10 : 6); }
  static std::span<const Row<HiddenLoss>> rows();
};

}  // namespace braid
