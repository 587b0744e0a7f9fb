// The variants behind the table of head_loss.cc.
#pragma once
#include "kernels/head_loss/head_loss.h"
#include "math/packed.h"

namespace braid {

// On packed operands (math/packed.h).
const char* head_loss_packed_supports(packed::Class c, const HeadLoss& op);
int64_t head_loss_packed_workspace(packed::Class c, const HeadLoss& op, int threads);
void head_loss_packed(packed::Class c, Ctx& ctx, const HeadLoss& op, std::span<std::byte> workspace);

// One token's logits, kLogitGrain-padded to `padded`, where what lies beyond `vocab` is overwritten.
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
// The loss; with `gradient` the logits become dlogits, as BF16 at the same address where `bf16`, zeros beyond vocab.
TokenLoss head_loss_row(const LogitRow& row, bool gradient, bool bf16);

}  // namespace braid
