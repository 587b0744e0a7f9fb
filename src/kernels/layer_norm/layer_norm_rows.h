// The variants behind the tables of layer_norm.cc, and what they share.
#pragma once
#include "kernels/layer_norm/layer_norm.h"

namespace braid {

// Every row belongs to one sequence, and they follow each other.
void check_rows(const LayerNormBwd& op);

void layer_norm_fwd_hwy(Ctx& ctx, const LayerNormFwd& op, std::span<std::byte> workspace);

int64_t layer_norm_bwd_hwy_workspace(const LayerNormBwd& op, int threads);
void layer_norm_bwd_hwy(Ctx& ctx, const LayerNormBwd& op, std::span<std::byte> workspace);

// The sums over tokens: a block of this many is summed by itself, then added to dw and dbias in order. Large enough for
// its sums to cost no traffic, small enough to hand out.
inline constexpr int64_t kLayerNormBlock = 32;

}  // namespace braid
