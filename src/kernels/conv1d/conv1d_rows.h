// The variants behind the table of conv1d.cc.
#pragma once
#include "kernels/conv1d/conv1d.h"

namespace braid {

void conv1d_fwd_hwy(Ctx& ctx, const Conv1dFwd& op, std::span<std::byte> workspace);

}  // namespace braid
