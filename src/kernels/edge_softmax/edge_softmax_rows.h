// The variants behind the tables of edge_softmax.cc.
#pragma once
#include "kernels/edge_softmax/edge_softmax.h"

namespace braid {

void edge_softmax_fwd_hwy(Ctx& ctx, const EdgeSoftmaxFwd& op, std::span<std::byte> workspace);
void edge_softmax_bwd_loops(Ctx& ctx, const EdgeSoftmaxBwd& op, std::span<std::byte> workspace);
void edge_softmax_fwd_cuda(Ctx& ctx, const EdgeSoftmaxFwd& op, std::span<std::byte> workspace);
void edge_softmax_bwd_cuda(Ctx& ctx, const EdgeSoftmaxBwd& op, std::span<std::byte> workspace);

}  // namespace braid
