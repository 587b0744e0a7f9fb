// The variants behind the tables of ssd.cc.
#pragma once
#include "kernels/ssd/ssd.h"
#include "math/packed_kernel.h"

namespace braid {

int64_t ssd_fwd_hwy_workspace(const SsdFwd& op, int threads);
void ssd_fwd_hwy(Ctx& ctx, const SsdFwd& op, std::span<std::byte> workspace);
// With `tiles` the products of blocks run on that kernel, else in FP32.
int64_t ssd_bwd_workspace(const packed::Kernel* tiles, const SsdBwd& op, int threads);
void ssd_bwd_blocks(const packed::Kernel* tiles, Ctx& ctx, const SsdBwd& op, std::span<std::byte> workspace);
void ssd_step_hwy(Ctx& ctx, const SsdStep& op, std::span<std::byte> workspace);

void ssd_step_cuda(Ctx& ctx, const SsdStep& op, std::span<std::byte> workspace);  // only with BRAID_CUDA

}  // namespace braid
