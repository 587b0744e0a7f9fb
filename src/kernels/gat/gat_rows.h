// The variants behind the tables of gat.cc, and the checks they share.
#pragma once
#include "kernels/gat/gat.h"

namespace braid {

// Shapes that letters cannot say.
void check_gat(const GatFwd& op);
void check_gat(const GatBwd& op);

// Rows of one partial sum of da: it stays in L1, and there are enough of them for threads.
inline constexpr int64_t kScoreRows = 256;

void gat_scores_fwd_loops(Ctx& ctx, const GatScoresFwd& op, std::span<std::byte> workspace);
int64_t gat_scores_bwd_workspace(const GatScoresBwd& op, int threads);
void gat_scores_bwd_loops(Ctx& ctx, const GatScoresBwd& op, std::span<std::byte> workspace);

void gat_fwd_online(Ctx& ctx, const GatFwd& op, std::span<std::byte> workspace);
int64_t gat_bwd_workspace(const GatBwd& op, int threads);
void gat_bwd_recompute(Ctx& ctx, const GatBwd& op, std::span<std::byte> workspace);

void gat_scores_fwd_cuda(Ctx& ctx, const GatScoresFwd& op, std::span<std::byte> workspace);
void gat_scores_bwd_cuda(Ctx& ctx, const GatScoresBwd& op, std::span<std::byte> workspace);
void gat_fwd_cuda(Ctx& ctx, const GatFwd& op, std::span<std::byte> workspace);
void gat_bwd_cuda(Ctx& ctx, const GatBwd& op, std::span<std::byte> workspace);

}  // namespace braid
