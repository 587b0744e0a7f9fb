// Small systems of linear equations in double, by Cholesky.
#pragma once
#include <cstdint>
#include <vector>

namespace braid {

// x of a x = b for a symmetric positive definite a [n, n]: every row of b [m, n] is solved for in place. Returns false
// where a is not definite.
bool solve_rows(std::vector<double>& a, std::vector<double>& b, int64_t n);

}  // namespace braid
