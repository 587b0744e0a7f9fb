// Copies whole entries within a state: the recurrent state of a sequence from slot to slot, keys and values from page
// to page. Used to fork a sequence, to save a state for later, and to copy a page that two sequences read before one of
// them writes it. Bytes are copied as they are, whatever their dtype.
// Inference only: training carries no state from pass to pass.
#pragma once
#include "core/op.h"

namespace braid {

struct CopyState {
  // No `to` occurs twice, and none is a `from`: the copies of one call may run in any order.
  struct Copy {
    int64_t from = 0, to = 0;  // entries
  };

  MutView state{};  // [S, D]: S slots or pages of D values
  std::span<const Copy> copies{};
  static constexpr const char* name = "copy_state";
  static constexpr auto fields() { return std::tuple{inout("state", &CopyState::state, "S D")}; }
  double flops() const { return 0; }
  static std::span<const Row<CopyState>> rows();

  // Entries of any rank, as rows: each is contiguous, with its axes in any order.
  static MutView entries(const MutView& state) {
    const int64_t values = state.count() / state.dim(0);
    CHECK(state.stride(0) == values, "entries of {} values, {} apart", values, state.stride(0));
    return {state.data, state.dtype, {state.dim(0), values}};
  }
};

}  // namespace braid
