// Loss as a function of width w and depth d, too, fitted to runs of several shapes (McLeish et al. 2025, "Gemstones",
// https://arxiv.org/abs/2502.06857):
//   L(w, d, N, D) = E + A / w^a + B / d^b + C / N^c + T / D^t
// by the same objective as without shapes (parametric.h), from starts in which each term has a share of the loss.
#pragma once
#include <array>
#include <span>

#include "law/runs.h"

namespace braid::law {

inline constexpr size_t kTerms = 4;  // width, depth, parameters, tokens

struct ShapeLaw {
  std::array<double, kTerms> exponent{}, log_factor{};
  double log_e = 0;

  double loss(double width, double depth, double params, double tokens) const;
  double irreducible() const;
};

struct ShapeFit {
  ShapeLaw law;
  double objective = 0, rms = 0;  // root of the weighted mean of squared log residuals
};

// Weights are of runs: how often each is drawn; none: once. `start`: from there alone.
ShapeFit fit_shapes(const Runs& runs, std::span<const double> weight_of_run, double delta, int threads,
                    const ShapeLaw* start = nullptr);

}  // namespace braid::law
