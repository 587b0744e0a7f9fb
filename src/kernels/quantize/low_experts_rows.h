// The variants behind the tables of low_experts.cc.
#pragma once
#include "kernels/quantize/low_experts.h"
#include "math/packed.h"

namespace braid {

int64_t low_experts_workspace(packed::Class c, const LowExpertsFwd& op, int threads);
int64_t low_experts_workspace(packed::Class c, const LowExpertsBwd& op, int threads);
void low_experts(packed::Class c, Ctx& ctx, const LowExpertsFwd& op, std::span<std::byte> workspace);
void low_experts(packed::Class c, Ctx& ctx, const LowExpertsBwd& op, std::span<std::byte> workspace);

}  // namespace braid
