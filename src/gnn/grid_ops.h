// The taped ops of a layer on a grid (grid.h) that no other layer has.
#pragma once
#include "comm/group.h"
#include "gnn/grid.h"

namespace braid::gnn {

// A block's edges and self-loops: x [cols, D] -> [rows, D] F32.
Tensor aggregate(Run& run, const GridBlock& block, const Tensor& x);
// Rows of all ranks, in their order: [shares of rows, D] -> [rows, D]. Has no gradient.
Tensor gather_rows(Run& run, comm::Group& ranks, const Tensor& x, int64_t rows);
// The same of a weight, whose gradient is summed and divided over the ranks: overwrites that of `part`.
Tensor gather_weight(Run& run, comm::Group& ranks, Param& part, int64_t rows);
// x [n, K], w [M, K], which have one dtype -> x w^T [n, M] F32.
Tensor product(Run& run, const Tensor& x, const Tensor& w);
// x + b F32 of a vector that the ranks share, whose gradient is summed over them.
Tensor shared_bias(Run& run, comm::Group& ranks, const Tensor& x, Param& b);

}  // namespace braid::gnn
