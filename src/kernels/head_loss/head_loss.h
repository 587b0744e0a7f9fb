// The output projection and the cross-entropy of its logits in one op, with their gradient: the logits of a whole batch
// never exist, only those of up to 256 tokens at a time, and nothing is computed twice.
//
//   logits_t = w x_t,  lse_t = log sum_v exp logits_tv,  loss_t = lse_t - logits[t, target_t] + z lse_t^2
//   dlogits_tv = token_weight_t ((1 + 2 z lse_t) softmax_tv - [v = target_t]),  dx = dlogits w,  dw += dlogits^T x
//
// A target of -1 is masked: loss 0, gradient 0. Logits, softmax and sums are FP32; with BF16 x the operands of all
// three products are BF16, dlogits too. dw adds up over the token grid of math/pieces.h.
#pragma once
#include "core/op.h"
#include "core/seq_map.h"

namespace braid {

struct HeadLoss {
  View x{};                      // [T, D] F32 or BF16; its dtype names the numerics class
  Weight w{};                    // [V, D] any format
  View targets{};                // [T] I32, -1 for masked
  View token_weight{};           // [T] F32, d total / d loss_t; empty: 1
  MutView loss{};                // [T] F32
  MutView lse{};                 // [T] F32, or empty
  MutView dx{};                  // [T, D] F32 or BF16, or empty
  MutView dw{};                  // [V, D] F32, accumulates, or empty
  float z = 0;                   // of the z-loss
  const SeqMap* seqs = nullptr;  // null: all rows are one sequence
  static constexpr const char* name = "head_loss";
  static constexpr auto fields() {
    return std::tuple{in("x", &HeadLoss::x, "T D"),           in("w", &HeadLoss::w, "V D"),
                      in("targets", &HeadLoss::targets, "T"), maybe("token_weight", &HeadLoss::token_weight, "T"),
                      out("loss", &HeadLoss::loss, "T"),      saved("lse", &HeadLoss::lse, "T"),
                      saved("dx", &HeadLoss::dx, "T D"),      maybe_inout("dw", &HeadLoss::dw, "V D")};
  }
  double flops() const {
    const int products = 1 + (dx ? 1 : 0) + (dw ? 1 : 0);
    return 2.0 * products * static_cast<double>(x.dim(0)) * static_cast<double>(w.rows) * static_cast<double>(w.cols);
  }
  static std::span<const Row<HeadLoss>> rows();
};

}  // namespace braid
