// The variants behind the table of router.cc.
#pragma once
#include "kernels/router/router.h"

namespace braid {

// The scores s of one token, scores [experts], of its logits [experts].
template <class Num>  // float, double
void router_scores(const float* logits, int64_t experts, RouterKind kind, Num* scores);

int64_t router_fwd_cpu_workspace(const RouterFwd& op, int threads);
void router_fwd_cpu(Ctx& ctx, const RouterFwd& op, std::span<std::byte> workspace);

int64_t router_stats_cpu_workspace(const RouterStats& op, int threads);
void router_stats_cpu(Ctx& ctx, const RouterStats& op, std::span<std::byte> workspace);
int64_t router_bwd_cpu_workspace(const RouterBwd& op, int threads);
void router_bwd_cpu(Ctx& ctx, const RouterBwd& op, std::span<std::byte> workspace);

}  // namespace braid
