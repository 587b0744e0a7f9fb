// The variants behind the table of experts.cc.
#pragma once
#include "kernels/experts/experts.h"
#include "math/packed_kernel.h"
#include "math/panel.h"

namespace braid {

int64_t experts_fwd_workspace(const ExpertsFwd& op, int threads);
void experts_fwd_grouped(PanelClass c, Ctx& ctx, const ExpertsFwd& op, std::span<std::byte> workspace);

// With `tiles` the products of gradients run on that kernel; u and g that were not saved are those of class `c`.
int64_t experts_bwd_workspace(PanelClass c, const packed::Kernel* tiles, const ExpertsBwd& op, int threads);
void experts_bwd_grouped(PanelClass c, const packed::Kernel* tiles, Ctx& ctx, const ExpertsBwd& op,
                         std::span<std::byte> workspace);

}  // namespace braid
