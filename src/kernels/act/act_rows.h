// The variants behind the table of act.cc.
#pragma once
#include "kernels/act/act.h"

namespace braid {

void act_fwd_hwy(Ctx& ctx, const ActFwd& op, std::span<std::byte> workspace);

}  // namespace braid
