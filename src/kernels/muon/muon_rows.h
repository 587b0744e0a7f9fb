// The variants behind the table of muon.cc.
#pragma once
#include "kernels/muon/muon.h"

namespace braid {

int64_t muon_step_workspace(const MuonStep& op, int threads);
void muon_step_packed(Ctx& ctx, const MuonStep& op, std::span<std::byte> workspace);

}  // namespace braid
