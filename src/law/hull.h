// The compute-optimal frontier without a formula for the loss ("approach 1"): the rows on the lower convex hull of
// (log FLOPs, log loss), as far as it falls, and power laws of parameters and tokens over FLOPs through them. A hull
// needs no widths of bins, and ignores shapes that are never optimal.
//   McLeish et al. 2025, https://arxiv.org/abs/2502.06857, approach 1
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "law/runs.h"

namespace braid::law {

// y = exp(intercept) x^exponent
struct PowerLaw {
  double exponent = 0, intercept = 0;
  double at(double x) const;
};

struct Frontier {
  PowerLaw params, tokens;  // of FLOPs
  int64_t points = 0;       // rows on the hull
};

// Rows on the hull by ascending FLOPs.
std::vector<Row> lower_hull(std::vector<Row> rows);

// Absent with fewer than three rows on the hull. Runs of weight 0 are left out; no weights: all count.
std::optional<Frontier> fit_frontier(const Runs& runs, std::span<const double> weight_of_run);

}  // namespace braid::law
