// The variants behind the table of experts.cc.
#pragma once
#include "kernels/experts/experts.h"
#include "math/panel.h"

namespace braid {

int64_t experts_fwd_workspace(const ExpertsFwd& op, int threads);
void experts_fwd_grouped(PanelClass c, Ctx& ctx, const ExpertsFwd& op, std::span<std::byte> workspace);

int64_t experts_bwd_workspace(PanelClass c, const ExpertsBwd& op, int threads);
void experts_bwd_grouped(PanelClass c, Ctx& ctx, const ExpertsBwd& op, std::span<std::byte> workspace);

}  // namespace braid
