// The residual stream between blocks, as vectors that are kept and tensors that passes read.
#pragma once
#include <algorithm>
#include <vector>

#include "core/ctx.h"
#include "core/tensor.h"

namespace braid::puzzle {

// [rows, columns] F32.
inline Tensor matrix(Ctx& ctx, const std::vector<float>& values, int64_t rows) {
  const Tensor x(ctx.arena, DType::f32, {rows, std::ssize(values) / rows});
  std::copy(values.begin(), values.end(), x.mut().as<float>());
  return x;
}

inline std::vector<float> copied(const Tensor& x) {
  const auto* values = x.view().as<float>();
  return {values, values + x.view().count()};
}

}  // namespace braid::puzzle
