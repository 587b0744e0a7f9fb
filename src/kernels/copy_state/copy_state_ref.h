// The meaning of copy_state.h, value by value.
#pragma once
#include "kernels/copy_state/copy_state.h"

namespace braid {

inline void copy_state_ref(const MutView& state, std::span<const CopyState::Copy> copies) {
  const int64_t width = state.dim(1);
  for (const auto& c : copies) {
    for (int64_t i = 0; i < width; ++i) set_element(state, c.to * width + i, element(state, c.from * width + i));
  }
}

}  // namespace braid
