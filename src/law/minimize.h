// A local minimum of a function of a few variables by BFGS with a dense inverse Hessian. The line search brackets the
// weak Wolfe conditions, so that it also ends at kinks, which a Huber loss with a small delta nearly has.
//   Nocedal, Wright: Numerical Optimization, section 6.1; Lewis, Overton 2013: Nonsmooth optimization via quasi-Newton
//   methods, section 2
#pragma once
#include <array>
#include <cstddef>
#include <type_traits>

#include "sys/function_ref.h"

namespace braid::law {

constexpr size_t kVariables = 5;
using Vector = std::array<double, kVariables>;

template <size_t N>
struct MinimumOf {
  std::array<double, N> x{};
  double value = 0;
};
using Minimum = MinimumOf<kVariables>;

template <size_t N>
using Slope = sys::FunctionRef<double(const std::array<double, N>& x, std::array<double, N>& gradient)>;

// `function` returns its value at x and writes the gradient there; a value that is not finite counts as infinite. Of 5
// and of 9 variables.
template <size_t N>
MinimumOf<N> minimize(std::type_identity_t<Slope<N>> function, const std::array<double, N>& start, int steps_max);

}  // namespace braid::law
