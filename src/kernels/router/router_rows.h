// The variants behind the table of router.cc.
#pragma once
#include "kernels/router/router.h"

namespace braid {

int64_t router_fwd_cpu_workspace(const RouterFwd& op, int threads);
void router_fwd_cpu(Ctx& ctx, const RouterFwd& op, std::span<std::byte> workspace);

}  // namespace braid
