// The variants behind the tables of bias.cc.
#pragma once
#include "kernels/bias/bias.h"

namespace braid {

void bias_fwd_hwy(Ctx& ctx, const BiasFwd& op, std::span<std::byte> workspace);

int64_t bias_bwd_workspace(const BiasBwd& op, int threads);
void bias_bwd_hwy(Ctx& ctx, const BiasBwd& op, std::span<std::byte> workspace);

}  // namespace braid
