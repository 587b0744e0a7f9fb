// The variants behind the table of layer_norm.cc.
#pragma once
#include "kernels/layer_norm/layer_norm.h"

namespace braid {

// Every row belongs to one sequence, and they follow each other.
void check_rows(const LayerNormBwd& op);

void layer_norm_fwd_hwy(Ctx& ctx, const LayerNormFwd& op, std::span<std::byte> workspace);

}  // namespace braid
