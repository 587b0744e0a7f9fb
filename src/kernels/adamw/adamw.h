// One step of Adam with decoupled weight decay, on every element of a parameter, in the order of operations of
// PyTorch's AdamW (all FP32 but the scalars, which are FP64 before they are rounded once):
//   g = grad_scale * g        w = w * (1 - lr * weight_decay)
//   m = m + (1 - beta1) * (g - m)        v = beta2 * v + (1 - beta2) * g * g
//   w = w - lr / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps)
// The working copy is w rounded to BF16. grad_scale applies clipping and loss scaling. Bound by memory: 28 bytes per
// element, 30 with a working copy.
#pragma once
#include "core/op.h"

namespace braid {

struct AdamwStep {
  View g{};           // [N] F32
  MutView w{};        // [N] F32, the master
  MutView m{}, v{};   // [N] F32, initially zero
  MutView working{};  // [N] BF16, or empty
  int64_t step = 1;   // from 1
  double lr = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  double grad_scale = 1;
  static constexpr const char* name = "adamw_step";
  static constexpr auto fields() {
    return std::tuple{in("g", &AdamwStep::g, "N"), inout("w", &AdamwStep::w, "N"), inout("m", &AdamwStep::m, "N"),
                      inout("v", &AdamwStep::v, "N"), optional_out("working", &AdamwStep::working, "N")};
  }
  double flops() const { return 14.0 * static_cast<double>(w.count()); }
  static std::span<const Row<AdamwStep>> rows();
};

// Sum of the squares of a contiguous F32 tensor: for the norm of all gradients, added up in the order of the
// parameters. In FP64, in blocks that depend on the size alone: the same bits on any number of threads.
double sum_of_squares(Ctx& ctx, const View& g);

}  // namespace braid
