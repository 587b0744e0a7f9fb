// Lists of integers, token ids mostly, as tensors.
#pragma once
#include <cstring>
#include <span>

#include "core/tensor.h"

namespace braid {

inline Tensor integers(Arena& arena, std::span<const int32_t> values) {
  const Tensor t(arena, DType::i32, {std::ssize(values)});
  std::memcpy(t.mut().data, values.data(), values.size_bytes());
  return t;
}

}  // namespace braid
