// A pass over a graph for tests: its tape, and tensors of given values.
#pragma once
#include "core/op_sweep.h"
#include "core/tape.h"
#include "gnn/layer.h"

namespace braid::gnn {

struct Pass {
  // `poison`: what ops do not write is NaN.
  explicit Pass(int64_t nodes = 1, bool poison = false) : seqs(SeqMap::one(nodes)) { ctx.poison = poison; }
  Arena arena;
  Tape tape;
  Ctx ctx{.arena = arena, .tape = &tape};
  SeqMap seqs;
  nn::StateView none;
  Run run{.ctx = ctx, .seqs = seqs, .state = none};

  Tensor tensor(const TestTensor& from, bool trained) {
    const Tensor t(arena, from.dtype, from.shape);
    for (int64_t i = 0; i < t.view().count(); ++i) set_element(t.mut(), i, element(from.view(), i));
    if (trained) tape.require_grad(t);
    return t;
  }
};

}  // namespace braid::gnn
