// The output projection and the cross-entropy of its logits: logits are never materialised for a whole batch, only for
// up to 2048 tokens at a time.
//
//   logits_t = w x_t,  lse_t = log sum_v exp logits_tv,  loss_t = lse_t - logits[t, target_t]
//   dlogits_tv = dloss_t ((1 + 2 z lse_t) softmax_tv - [v = target_t]),  dx = dlogits w,  dw += dlogits^T x
//
// A target of -1 is masked: loss 0, gradient 0. The gradient is that of dloss_t (loss_t + z lse_t^2): the z-loss is not
// part of `loss`; it follows from lse.
//
// A distribution in place of one target is that of distill_loss.h.
//
// HeadLoss computes loss and gradients in one pass, when the weight of each token is known in advance. HeadLossFwd
// computes only the losses and HeadLossBwd, for weights that depend on them (preferences, policies), recomputes the
// logits tile by tile; the two together are bit-identical to HeadLoss. Logits, softmax and sums are FP32; with BF16 x
// the operands of all three products are BF16, dlogits included. dw accumulates over the token grid of math/pieces.h.
#pragma once
#include "core/op.h"
#include "core/seq_map.h"

namespace braid {

// FLOPs of a pass over the head.
inline double head_loss_flops(const View& x, const Weight& w, int products) {
  return 2.0 * products * static_cast<double>(x.dim(0)) * static_cast<double>(w.rows) * static_cast<double>(w.cols);
}

struct HeadLoss {
  View x{};                      // [T, D] F32 or BF16; its dtype names the numerics class
  Weight w{};                    // [V, D] any format
  View targets{};                // [T] I32, -1 for masked
  View token_weight{};           // [T] F32, dloss; empty: 1
  MutView loss{};                // [T] F32
  MutView lse{};                 // [T] F32, or empty
  MutView dx{};                  // [T, D] F32 or BF16, or empty
  MutView dw{};                  // [V, D] F32, accumulates, or empty
  float z = 0;                   // of the z-loss
  const SeqMap* seqs = nullptr;  // null: all rows are one sequence
  static constexpr const char* name = "head_loss";
  static constexpr auto fields() {
    return std::tuple{in("x", &HeadLoss::x, "T D"),
                      in("w", &HeadLoss::w, "V D"),
                      in("targets", &HeadLoss::targets, "T"),
                      maybe("token_weight", &HeadLoss::token_weight, "T"),
                      out("loss", &HeadLoss::loss, "T"),
                      optional_out("lse", &HeadLoss::lse, "T"),
                      optional_out("dx", &HeadLoss::dx, "T D"),
                      maybe_inout("dw", &HeadLoss::dw, "V D")};
  }
  double flops() const { return head_loss_flops(x, w, 1 + (dx ? 1 : 0) + (dw ? 1 : 0)); }
  static std::span<const Row<HeadLoss>> rows();
};

struct HeadLossFwd {
  View x{};        // [T, D] F32 or BF16
  Weight w{};      // [V, D]
  View targets{};  // [T] I32
  MutView loss{};  // [T] F32
  MutView lse{};   // [T] F32, or empty
  static constexpr const char* name = "head_loss_fwd";
  static constexpr auto fields() {
    return std::tuple{in("x", &HeadLossFwd::x, "T D"), in("w", &HeadLossFwd::w, "V D"),
                      in("targets", &HeadLossFwd::targets, "T"), out("loss", &HeadLossFwd::loss, "T"),
                      optional_out("lse", &HeadLossFwd::lse, "T")};
  }
  double flops() const { return head_loss_flops(x, w, 1); }
  static std::span<const Row<HeadLossFwd>> rows();
};

struct HeadLossBwd {
  View dloss{};    // [T] F32
  View x{};        // [T, D] F32 or BF16
  Weight w{};      // [V, D]
  View targets{};  // [T] I32
  MutView dx{};    // [T, D] F32 or BF16
  MutView dw{};    // [V, D] F32, accumulates, or empty
  float z = 0;
  const SeqMap* seqs = nullptr;
  static constexpr const char* name = "head_loss_bwd";
  static constexpr auto fields() {
    return std::tuple{in("dloss", &HeadLossBwd::dloss, "T"), in("x", &HeadLossBwd::x, "T D"),
                      in("w", &HeadLossBwd::w, "V D"),       in("targets", &HeadLossBwd::targets, "T"),
                      out("dx", &HeadLossBwd::dx, "T D"),    maybe_inout("dw", &HeadLossBwd::dw, "V D")};
  }
  double flops() const { return head_loss_flops(x, w, 2 + (dw ? 1 : 0)); }
  static std::span<const Row<HeadLossBwd>> rows();
};

}  // namespace braid
