// The variants behind the tables of head_loss.cc, and what the three ops share.
#pragma once
#include "kernels/head_loss/head_loss.h"
#include "math/packed.h"

namespace braid {

// Each op as one problem; what the op does not have is empty.
struct HeadProblem : HeadLoss {
  // Of distill_loss.h, where `loss` is kl and lse is empty.
  bool distills = false;
  View teacher_x{};
  Weight teacher_w{};
  View top_ids{}, top_logprobs{};
  MutView ce{};
  float temperature = 1, kl_weight = 1, ce_weight = 0;
};

inline HeadProblem problem_of(const HeadLoss& op) { return {op}; }
inline HeadProblem problem_of(const HeadLossFwd& op) {
  return {HeadLoss{.x = op.x, .w = op.w, .targets = op.targets, .loss = op.loss, .lse = op.lse}};
}
inline HeadProblem problem_of(const HeadLossBwd& op) {
  return {HeadLoss{.x = op.x,
                   .w = op.w,
                   .targets = op.targets,
                   .token_weight = op.dloss,
                   .dx = op.dx,
                   .dw = op.dw,
                   .z = op.z,
                   .seqs = op.seqs}};
}

// On packed operands (math/packed.h).
const char* head_loss_packed_supports(packed::Class c, const HeadProblem& op);
int64_t head_loss_packed_workspace(packed::Class c, const HeadProblem& op, int threads);
void head_loss_packed(packed::Class c, Ctx& ctx, const HeadProblem& op, std::span<std::byte> workspace);

// One token's logits, kLogitGrain-padded to `padded`; entries beyond `vocab` are overwritten.
inline constexpr int64_t kLogitGrain = 64;
struct LogitRow {
  float* logits = nullptr;
  int64_t vocab = 0, padded = 0;
  int32_t target = -1;
  float weight = 1, z = 0;
};
struct TokenLoss {
  float loss = 0, lse = 0;
};
// Returns the loss; with `gradient` overwrites the logits with dlogits (as BF16 if `bf16`), zeros beyond vocab.
TokenLoss head_loss_row(const LogitRow& row, bool gradient, bool bf16);

}  // namespace braid
