// Copies whole entries of a state to other places of it: the recurrent state of a sequence from slot to slot, keys and
// values from page to page. What forks a sequence, keeps a state to come back to, and gives a page that two sequences
// read to the one that is about to write it. Bytes are moved as they are, whatever their dtype.
// Inference only: training carries no state from pass to pass.
#pragma once
#include "core/op.h"

namespace braid {

struct CopyState {
  // No `to` is named twice, and none is a `from`: the copies of one call may run in any order.
  struct Copy {
    int64_t from = 0, to = 0;  // entries
  };

  MutView state{};  // [S, D]: S slots or pages of D values
  std::span<const Copy> copies{};
  static constexpr const char* name = "copy_state";
  static constexpr auto fields() { return std::tuple{inout("state", &CopyState::state, "S D")}; }
  double flops() const { return 0; }
  static std::span<const Row<CopyState>> rows();

  // Entries of any rank, as rows.
  static MutView entries(const MutView& state) {
    CHECK(state.contiguous(), "a state of {} is not contiguous", to_string(state.shape));
    return {state.data, state.dtype, {state.dim(0), state.count() / state.dim(0)}};
  }
};

}  // namespace braid
