// The variants behind the table of experts.cc.
#pragma once
#include "kernels/experts/experts.h"
#include "math/codes_a8.h"
#include "math/codes_dot.h"
#include "math/packed.h"
#include "math/panel.h"
#include "math/tile.h"

namespace braid {

// How products are computed: the last of these that is set applies.
struct ExpertProducts {
  PanelClass panel = PanelClass::bf16;
  const packed::Kernel* packed = nullptr;
  const tiles::Walk* walk = nullptr;
  bool codes = false;  // groups of at most codes::kRowsMax rows as integers (math/codes_dot.h), larger ones as above
  bool a8 = false;     // 8-bit integers (math/codes_a8.h)
};
int64_t experts_fwd_workspace(const ExpertProducts& c, const ExpertsFwd& op, int threads);
void experts_fwd_grouped(const ExpertProducts& c, Ctx& ctx, const ExpertsFwd& op, std::span<std::byte> workspace);

// On packed operands; u and g that were not saved are recomputed in forward's class (train).
int64_t experts_bwd_workspace(const packed::Kernel& kernel, const ExpertsBwd& op, int threads);
void experts_bwd_packed(const packed::Kernel& kernel, Ctx& ctx, const ExpertsBwd& op, std::span<std::byte> workspace);

}  // namespace braid
