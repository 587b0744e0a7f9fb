// For tests of ops.
#pragma once
#include "core/ctx.h"
#include "core/op.h"
#include "sys/parallel.h"

namespace braid::support {

// Runs the op in a context of its own.
template <class Op>
void run_here(const Op& op, int threads = sys::default_threads()) {
  Arena arena;
  Ctx ctx{.arena = arena, .threads = threads};
  run(ctx, op);
}

}  // namespace braid::support
