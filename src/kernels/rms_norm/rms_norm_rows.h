// The variants behind the tables of rms_norm.cc.
#pragma once
#include "kernels/rms_norm/rms_norm.h"

namespace braid {

void rms_norm_fwd_hwy(Ctx& ctx, const RmsNormFwd& op, std::span<std::byte> workspace);
int64_t rms_norm_bwd_hwy_workspace(const RmsNormBwd& op, int threads);
void rms_norm_bwd_hwy(Ctx& ctx, const RmsNormBwd& op, std::span<std::byte> workspace);
void rms_norm_fwd_cuda(Ctx& ctx, const RmsNormFwd& op, std::span<std::byte> workspace);  // only with BRAID_CUDA

}  // namespace braid
