// The variants behind the tables of dropout.cc, and what they share.
#pragma once
#include "kernels/dropout/dropout.h"

namespace braid {

// Both directions: to = from / (1 - rate), or 0.
struct DropoutMap {
  const char* op = "";
  View from{};                   // [T, D] F32 or BF16
  MutView to{};                  // [T, D] F32 or BF16
  const SeqMap* seqs = nullptr;  // null: one sequence, sample 0
  float rate = 0;
  DropoutKey key{};
};
inline DropoutMap map_of(const DropoutFwd& op) {
  return {.op = DropoutFwd::name, .from = op.x, .to = op.y, .seqs = op.seqs, .rate = op.rate, .key = op.key};
}
inline DropoutMap map_of(const DropoutBwd& op) {
  return {.op = DropoutBwd::name, .from = op.dy, .to = op.dx, .seqs = op.seqs, .rate = op.rate, .key = op.key};
}

void dropout_hwy(Ctx& ctx, const DropoutMap& map);

}  // namespace braid
