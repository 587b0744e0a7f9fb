// One token of distill_loss (distill_row_cpu.cc).
#pragma once
#include "kernels/head_loss/head_loss_rows.h"

namespace braid {

struct DistillRow {
  float* logits = nullptr;          // [padded] of the student, as in LogitRow; those beyond `vocab` are overwritten
  float* teacher = nullptr;         // [padded] logits of the teacher, likewise; null: entries
  const int32_t* ids = nullptr;     // [entries] of the vocabulary, -1 for none
  const float* logprobs = nullptr;  // [entries] nats, the teacher's at `temperature`
  int64_t entries = 0;
  int64_t vocab = 0, padded = 0;  // padded: a multiple of kLogitGrain
  int32_t target = -1;            // -1: masked
  float weight = 1, temperature = 1, kl_weight = 1, ce_weight = 0;
};
struct DistillTokenLoss {
  float kl = 0, ce = 0;  // nats
};
// Returns the losses; with `gradient` overwrites the student's logits with dlogits (as BF16 if `bf16`), zeros beyond
// vocab.
DistillTokenLoss distill_row(const DistillRow& row, bool gradient, bool bf16);

}  // namespace braid
