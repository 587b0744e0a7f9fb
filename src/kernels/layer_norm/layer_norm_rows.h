// The variants behind the tables of layer_norm.cc, and their shared parts.
#pragma once
#include "kernels/layer_norm/layer_norm.h"

namespace braid {

// Checks that the sequences are contiguous and cover every row.
void check_rows(const LayerNormBwd& op);

void layer_norm_fwd_hwy(Ctx& ctx, const LayerNormFwd& op, std::span<std::byte> workspace);

int64_t layer_norm_bwd_hwy_workspace(const LayerNormBwd& op, int threads);
void layer_norm_bwd_hwy(Ctx& ctx, const LayerNormBwd& op, std::span<std::byte> workspace);

// Tokens in a block: each block is summed on its own, then added to dw and dbias in order. Large enough that the sums
// cost no memory traffic, small enough to spread over threads.
inline constexpr int64_t kLayerNormBlock = 32;

}  // namespace braid
