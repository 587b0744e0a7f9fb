// A local minimum of a function of a few variables by BFGS with a dense inverse Hessian. The line search brackets the
// weak Wolfe conditions, so that it also ends at kinks, which a Huber loss with a small delta nearly has.
//   Nocedal, Wright: Numerical Optimization, section 6.1; Lewis, Overton 2013: Nonsmooth optimization via quasi-Newton
//   methods, section 2
#pragma once
#include <array>
#include <cstddef>

#include "sys/function_ref.h"

namespace braid::law {

constexpr size_t kVariables = 5;
using Vector = std::array<double, kVariables>;

struct Minimum {
  Vector x{};
  double value = 0;
};

// `function` returns its value at x and writes the gradient there; a value that is not finite counts as infinite.
Minimum minimize(sys::FunctionRef<double(const Vector& x, Vector& gradient)> function, const Vector& start,
                 int steps_max);

}  // namespace braid::law
