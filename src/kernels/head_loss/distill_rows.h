// One token of distill_loss (distill_row_cpu.cc).
#pragma once
#include "kernels/head_loss/head_loss_rows.h"

namespace braid {

struct DistillRow {
  float* logits = nullptr;   // of the student, as in LogitRow; entries beyond `vocab` are overwritten, here too:
  float* teacher = nullptr;  // of the teacher; null: entries
  const int32_t* ids = nullptr;
  const float* logprobs = nullptr;
  int64_t entries = 0;
  int64_t vocab = 0, padded = 0;
  int32_t target = -1;
  float weight = 1, temperature = 1, kl_weight = 1, ce_weight = 0;
};
struct DistillTokenLoss {
  float kl = 0, ce = 0;
};
// Returns the losses; with `gradient` overwrites the student's logits with dlogits (as BF16 if `bf16`), zeros beyond
// vocab.
DistillTokenLoss distill_row(const DistillRow& row, bool gradient, bool bf16);

}  // namespace braid
