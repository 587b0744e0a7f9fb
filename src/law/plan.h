// The compute-optimal run by a fit: for C FLOPs, with C = k N D,
//   N_opt = G (C/k)^(beta/(alpha+beta)),  D_opt = (C/k)/N_opt,  G = (alpha A / (beta B))^(1/(alpha+beta))
//   Hoffmann et al. 2022, https://arxiv.org/abs/2203.15556, equation 4, where k = 6
// and what another size costs: the FLOPs that reach the optimum's loss with it ("overspending", McLeish et al. 2025).
#pragma once
#include <optional>
#include <vector>

#include "law/fit.h"

namespace braid::law {

struct Shape {
  double params = 0, tokens = 0;
};

Shape optimum(const Law& law, double flops, double flops_factor);

// Tokens with which `params` reach a loss; absent where no number of tokens does.
std::optional<double> tokens_to_reach(const Law& law, double params, double loss);

// Training with the same FLOPs at another size.
struct Deviation {
  double ratio = 1;  // of its parameters to the optimum's
  Shape shape{};
  double loss = 0;
  std::optional<double> overspend{};  // FLOPs to reach the optimum's loss, over those planned; absent: never reached
};

struct Plan {
  double flops = 0;
  Shape best{};
  Range params{}, tokens{};  // of the optima of all draws
  double loss = 0;
  Range loss_interval{};           // of the law at `best`, by all draws
  std::optional<Shape> on_hull{};  // by approach 1
  Range hull_params{}, hull_tokens{};
  double extrapolation = 0;  // FLOPs over the largest row's
  std::vector<Deviation> deviations{};
};

Plan plan(const Fit& fit, double flops);

}  // namespace braid::law
