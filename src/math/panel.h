// The product that every weight meets, on the calling thread: y[m, n] = global * sum_k x[m, k] * w[n, k].
//
// Both operands are walked along k, the direction in which files store weights, so that an unquantised weight is read
// in place, once, as one stream. Each (m, n) keeps a vector of partial sums, added up in a fixed tree at the end: a
// result depends on x's row and w's row alone, not on how many rows or columns are computed together. Weights of other
// formats are decoded a few rows at a time into `workspace`.
//
//   x BF16   class "bf16": products of BF16 numbers, FP32 sums
//   x F32    class "f32": weights widened exactly, FP32 products and sums
#pragma once
#include <cstddef>
#include <span>

#include "core/weight.h"

namespace braid {

// Workspace of one thread, in bytes.
int64_t panel_workspace(const Weight& w);

// x [M, K] F32 or BF16, w [N, K], y [M, N] F32 or BF16; rows contiguous.
void panel_product(const View& x, const Weight& w, const MutView& y, std::span<std::byte> workspace);

}  // namespace braid
