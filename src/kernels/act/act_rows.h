// The variants behind the tables of act.cc, and the check they share.
#pragma once
#include "kernels/act/act.h"

namespace braid {

void act_fwd_hwy(Ctx& ctx, const ActFwd& op, std::span<std::byte> workspace);

// A gate and its gradient come together.
void check_gate(const ActBwd& op);
void act_bwd_hwy(Ctx& ctx, const ActBwd& op, std::span<std::byte> workspace);

}  // namespace braid
