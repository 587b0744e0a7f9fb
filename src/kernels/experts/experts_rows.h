// The variants behind the table of experts.cc.
#pragma once
#include "kernels/experts/experts.h"
#include "math/panel.h"

namespace braid {

int64_t experts_fwd_workspace(const ExpertsFwd& op, int threads);
void experts_fwd_grouped(PanelClass c, Ctx& ctx, const ExpertsFwd& op, std::span<std::byte> workspace);

}  // namespace braid
