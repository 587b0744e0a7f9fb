// The variants behind the table of sddmm.cc, and the check they share.
#pragma once
#include "kernels/sddmm/sddmm.h"

namespace braid {

void check_sddmm(const SddmmFwd& op);
void sddmm_fwd_hwy(Ctx& ctx, const SddmmFwd& op, std::span<std::byte> workspace);
void sddmm_fwd_cuda(Ctx& ctx, const SddmmFwd& op, std::span<std::byte> workspace);

}  // namespace braid
