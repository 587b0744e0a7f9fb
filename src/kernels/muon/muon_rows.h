// The variants behind the tables of muon.cc.
#pragma once
#include "kernels/muon/muon.h"

namespace braid {

void muon_direction_rows(Ctx& ctx, const MuonDirection& op, std::span<std::byte> workspace);
int64_t orthogonalize_workspace(const Orthogonalize& op, int threads);
void orthogonalize_packed(Ctx& ctx, const Orthogonalize& op, std::span<std::byte> workspace);
void muon_apply_rows(Ctx& ctx, const MuonApply& op, std::span<std::byte> workspace);

}  // namespace braid
