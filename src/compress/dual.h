// The Lagrangian bound of a choice: with a price for every limit, each layer by itself takes the variant of the least
// score plus priced costs, and the sum of these minus the priced limits is a lower bound of every choice within the
// limits (Fisher, The Lagrangian Relaxation Method, 1981). The best prices give the bound of the linear relaxation.
#pragma once
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "compress/choice.h"

namespace braid::compress {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// An instance in flat arrays. The costs of a limit are scaled by a power of two, which is exact, so that the largest
// is below 1: units do not matter then.
struct Problem {
  explicit Problem(const Instance& instance);

  int64_t layers() const { return std::ssize(begin) - 1; }
  const double* cost_of(int64_t variant) const { return cost.data() + variant * limits; }
  // Score plus priced costs of a variant.
  double priced(int64_t variant, std::span<const double> prices) const;
  // How far rounding can move a sum of priced variants of all layers minus the priced limits.
  double rounding(std::span<const double> prices) const;

  int64_t limits = 0;
  std::vector<int64_t> begin;  // [L + 1] variants of layer l: begin[l] to begin[l + 1]
  std::vector<double> score;   // [V]
  std::vector<double> cost;    // [V, limits]
  std::vector<double> limit;   // [limits], with the allowance for rounding
  std::vector<double> total;   // [limits] sums over layers of the largest costs
  double score_total = 0;      // the same of magnitudes of scores
  double tolerance = 0;        // differences of scores below this are rounding
};

struct DualPoint {
  double bound = 0;               // less its rounding
  std::vector<int64_t> variants;  // [L] what the layers take, numbered as in Problem
  std::vector<double> used;       // [limits] their costs
  double score = 0;               // of them
  bool fits = false;              // within all limits
};
DualPoint dual_at(const Problem& problem, std::span<const double> prices);

// Prices that nearly maximise the bound, and the best choice met on the way.
struct Dual {
  std::vector<double> prices;  // [limits]
  double bound = 0;
  std::vector<int64_t> variants;  // empty: no choice within the limits was met
  double score = 0;
};
Dual maximise_dual(const Problem& problem);

}  // namespace braid::compress
