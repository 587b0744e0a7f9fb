// Distillation of one head into another: the divergence of a student's next tokens from a teacher's, the cross-entropy
// alongside, and their gradients in one pass. As in head_loss.h the logits of neither are ever materialised for a whole
// batch.
//
//   p = softmax(teacher logits / T), q = softmax(logits / T)        logits = w x, teacher logits = teacher_w teacher_x
//   kl_t = sum_v p_v (log p_v - log q_v)                            Hinton et al. 2015
//   ce_t = lse_t - logits[target_t]
//   dlogits_t = token_weight_t (kl_weight T (q - p) + ce_weight (softmax(logits) - [v = target_t]))
//
// which is the gradient of token_weight (kl_weight T^2 kl + ce_weight ce). A target of -1 is masked: 0 everywhere.
//
// Instead of a head the teacher may be K log-probabilities (at the same T) of distinct entries; what they leave of 1 is
// one more bucket, the tail, against all else that the student says:
//   kl_t = sum_k p_k (log p_k - log q_k) + p_tail (log p_tail - log q_tail)
//
// Numerics are those of HeadLoss; two equal heads have a divergence of exactly 0.
#pragma once
#include "kernels/head_loss/head_loss.h"

namespace braid {

inline constexpr int64_t kDistillEntries = 256;  // K at most: what a row keeps aside

struct DistillLoss {
  View x{};               // [T, D] F32 or BF16
  Weight w{};             // [V, D] any format
  View teacher_x{};       // [T, Dt] in the type of x, or empty
  Weight teacher_w{};     // [V, Dt] any format, or empty
  View top_ids{};         // [T, K] I32, -1 for none, or empty
  View top_logprobs{};    // [T, K] F32, or empty
  View targets{};         // [T] I32, -1 for masked
  View token_weight{};    // [T] F32; empty: 1
  MutView kl{};           // [T] F32
  MutView ce{};           // [T] F32, or empty
  MutView dx{};           // [T, D] F32 or BF16, or empty
  MutView dw{};           // [V, D] F32, accumulates, or empty
  float temperature = 1;  // T
  float kl_weight = 1, ce_weight = 0;
  const SeqMap* seqs = nullptr;  // null: all rows are one sequence

  static constexpr const char* name = "distill_loss";
  static constexpr auto fields() {
    return std::tuple{in("x", &DistillLoss::x, "T D"),
                      in("w", &DistillLoss::w, "V D"),
                      maybe("teacher_x", &DistillLoss::teacher_x, "T Dt"),
                      maybe("teacher_w", &DistillLoss::teacher_w, "V Dt"),
                      maybe("top_ids", &DistillLoss::top_ids, "T K"),
                      maybe("top_logprobs", &DistillLoss::top_logprobs, "T K"),
                      in("targets", &DistillLoss::targets, "T"),
                      maybe("token_weight", &DistillLoss::token_weight, "T"),
                      out("kl", &DistillLoss::kl, "T"),
                      optional_out("ce", &DistillLoss::ce, "T"),
                      optional_out("dx", &DistillLoss::dx, "T D"),
                      maybe_inout("dw", &DistillLoss::dw, "V D")};
  }
  double flops() const {
    return head_loss_flops(x, w, 1 + (dx ? 1 : 0) + (dw ? 1 : 0)) +
           (teacher_x ? head_loss_flops(teacher_x, teacher_w, 1) : 0);
  }
  static std::span<const Row<DistillLoss>> rows();
};

}  // namespace braid
