// The variants behind the table of add.cc.
#pragma once
#include "kernels/add/add.h"

namespace braid {

void add_fwd_hwy(Ctx& ctx, const AddFwd& op, std::span<std::byte> workspace);

}  // namespace braid
