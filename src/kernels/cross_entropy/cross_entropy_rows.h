// The variants behind the tables of cross_entropy.cc.
#pragma once
#include "kernels/cross_entropy/cross_entropy.h"

namespace braid {

void cross_entropy_fwd_hwy(Ctx& ctx, const CrossEntropyFwd& op, std::span<std::byte> workspace);
void cross_entropy_bwd_hwy(Ctx& ctx, const CrossEntropyBwd& op, std::span<std::byte> workspace);

}  // namespace braid
