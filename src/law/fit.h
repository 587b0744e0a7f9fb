// Both approaches on the same runs, and how far to trust them: intervals from resampled runs, and the error on every
// size that the fit has not seen.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "law/hull.h"
#include "law/parametric.h"
#include "law/runs.h"
#include "law/shape_law.h"

namespace braid::law {

struct FitOptions {
  double delta = 1e-3;      // of the Huber loss
  int64_t resamples = 200;  // bootstrap draws of runs; 0: no intervals
  uint64_t seed = 0;
  int threads = 1;
};

struct Range {
  double low = 0, high = 0;
};

// The middle `share` of the values, interpolated between order statistics.
Range interval(std::vector<double> values, double share = 0.95);

// Relative errors of predicted losses, each size (count of parameters) predicted by a fit to all others.
struct LeftOut {
  int64_t sizes = 0;
  double mean = 0, rms = 0, worst = 0;  // worst: signed
  double worst_params = 0;              // the size of the worst row
};

struct Fit {
  int64_t runs = 0, rows = 0, sizes = 0;
  Range params{}, tokens{}, flops{}, loss{};  // of the rows
  double flops_factor = 6;                    // median of flops / (params tokens)
  double delta = 0, objective = 0, rms = 0, starts_near = 0;
  Law law{};
  std::optional<Frontier> frontier{};
  std::vector<Law> draws{};  // a refit for every resample of runs whose columns identify a law
  std::vector<Frontier> frontier_draws{};
  std::optional<ShapeFit> shapes{};  // where the runs have widths and depths that identify a law of them
  std::vector<ShapeLaw> shape_draws{};
  LeftOut left_out{};
  std::vector<std::string> warnings{};
};

// Error, naming the column, if the rows identify no law: fewer than three values of params or tokens, tokens a power of
// params.
void check_identifiable(const Runs& runs, const std::string& name);

// Whether they have three widths and depths or more, which are not powers of each other.
bool identifies_shapes(const Runs& runs);

Fit fit(const Runs& runs, const std::string& name, const FitOptions& options);

// Of a value over draws; NaN without any.
template <class Draws, class Value>
Range interval_of(const Draws& draws, const Value& value) {
  std::vector<double> values;
  values.reserve(draws.size());
  for (const auto& d : draws) values.push_back(value(d));
  return interval(std::move(values));
}

}  // namespace braid::law
