// The plain map that comes closest to a block: over the normed inputs n [T, D] and the outputs o [T, D] of the parent's
// block, the least squares of o - W n with a small ridge:
//   W = (sum o n^T) (sum n n^T + ridge I)^-1,   ridge = 1e-3 of the mean diagonal
// Sums in F32, solved in F64 by Cholesky: D^3 operations.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "puzzle/distill.h"

namespace braid::puzzle {

// `first` of a linear variant with that map, rounded to the type of the files.
Values fitted_linear(Parent& parent, size_t index, const Values& first, std::span<const DistillRow> rows, int threads);

}  // namespace braid::puzzle
