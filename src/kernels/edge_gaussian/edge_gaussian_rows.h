// The variants behind the tables of edge_gaussian.cc.
#pragma once
#include "kernels/edge_gaussian/edge_gaussian.h"

namespace braid {

void edge_gaussian_fwd_hwy(Ctx& ctx, const EdgeGaussianFwd& op, std::span<std::byte> workspace);

int64_t edge_gaussian_bwd_workspace(const EdgeGaussianBwd& op, int threads);
void edge_gaussian_bwd_loops(Ctx& ctx, const EdgeGaussianBwd& op, std::span<std::byte> workspace);

}  // namespace braid
