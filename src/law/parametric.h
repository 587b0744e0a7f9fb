// Loss as a function of parameters N and tokens D, fitted to runs ("approach 3"):
//   L(N, D) = E + A / N^alpha + B / D^beta
// The fit minimises the sum over rows of the Huber loss of log L(N, D) - log loss, in double precision, from a grid of
// starts, because most of them end in worse local minima.
//   Hoffmann et al. 2022, https://arxiv.org/abs/2203.15556, section 3.3; the grid of starts and delta = 1e-4 as in
//   McLeish et al. 2025, https://arxiv.org/abs/2502.06857 (github.com/mcleish7/gemstone-scaling-laws, depth_width.py)
#pragma once
#include <span>
#include <vector>

#include "law/minimize.h"
#include "law/runs.h"

namespace braid::law {

struct Law {
  double alpha = 0, beta = 0;
  double log_a = 0, log_b = 0, log_e = 0;  // natural logarithms of A, B and E

  double loss(double params, double tokens) const;
  double irreducible() const;  // E
  // N_opt grows as C^size_exponent and D_opt as C^(1 - size_exponent).
  double size_exponent() const { return beta / (alpha + beta); }
};

// Rows as a fit sees them. A weight is how often the row's run was drawn: 0 leaves it out.
struct Sample {
  std::vector<double> log_params, log_tokens, log_loss, weight;
};
Sample sample_of(const Runs& runs, std::span<const double> weight_of_run);  // empty: each run once

// The sum of Huber losses. `gradient`, if not null: by alpha, beta, log_a, log_b, log_e.
double huber_sum(const Sample& sample, double delta, const Law& law, Vector* gradient = nullptr);

// Root of the weighted mean of squared log residuals.
double rms_residual(const Sample& sample, const Law& law);

struct ParametricFit {
  Law law;
  double objective = 0;       // huber_sum at the minimum
  double starts_near = 0;     // share of the tried starts, the best eighth of the grid, that ended within 1% of it
  std::vector<Law> starts{};  // a few of those: enough for a refit on other weights
};

// alpha from 0 to 2, log A and log B from 0 to 25, log E from -1 to 1; the most promising eighth is tried.
ParametricFit fit_parametric(const Sample& sample, double delta, int threads);

// From given starts, on the calling thread.
Law refit_parametric(const Sample& sample, double delta, std::span<const Law> starts);

}  // namespace braid::law
