// The variants behind the tables of rope.cc, and their shared parts.
#pragma once
#include "kernels/rope/rope.h"

namespace braid {

// Both directions: heads x [T, H, P] are rotated by `sign` times their angle.
struct RopeArgs {
  const char* op = "";
  MutView x{};
  View cos{}, sin{};
  const SeqMap* seqs = nullptr;
  float sign = 1;
  bool adjacent = false;
};
inline RopeArgs args_of(const RopeFwd& op) {
  return {.op = RopeFwd::name,
          .x = op.x,
          .cos = op.cos,
          .sin = op.sin,
          .seqs = op.seqs,
          .sign = 1,
          .adjacent = op.adjacent};
}
inline RopeArgs args_of(const RopeBwd& op) {
  return {.op = RopeBwd::name,
          .x = op.dx,
          .cos = op.cos,
          .sin = op.sin,
          .seqs = op.seqs,
          .sign = -1,
          .adjacent = op.adjacent};
}

void check_rope(const RopeArgs& args);
void rope_hwy(Ctx& ctx, const RopeArgs& args);

}  // namespace braid
