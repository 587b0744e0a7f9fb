// A collective that a transport's library does itself: the algorithms "native" and "native_blocking" of algorithm.h.
// Its arguments are those of one rank, as Group checked them; counts are in elements.
#pragma once
#include "comm/algorithm.h"
#include "comm/reduction.h"

namespace braid::comm {

struct NativeCall {
  Problem problem{};
  uint32_t context = 0;  // of its group
  DType type = DType::f32;
  Reduction reduction = Reduction::sum;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  bool blocks = false;  // returns when it is over
};

}  // namespace braid::comm
