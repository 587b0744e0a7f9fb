// The variants behind the table of layer_norm.cc.
#pragma once
#include "kernels/layer_norm/layer_norm.h"

namespace braid {

void layer_norm_fwd_hwy(Ctx& ctx, const LayerNormFwd& op, std::span<std::byte> workspace);

}  // namespace braid
