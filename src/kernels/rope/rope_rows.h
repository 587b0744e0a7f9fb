// The variants behind the table of rope.cc, and the check they share.
#pragma once
#include "kernels/rope/rope.h"

namespace braid {

void check_rope(const RopeFwd& op);
void rope_fwd_hwy(Ctx& ctx, const RopeFwd& op, std::span<std::byte> workspace);

}  // namespace braid
