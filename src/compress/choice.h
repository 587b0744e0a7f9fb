// The choice of Puzzle (arXiv 2411.19146, section 3): one variant for every layer, so that the sum of their scores is
// least and the sums of their costs (ms, GiB, ...) stay within limits. With one limit this is the multiple-choice
// knapsack problem. Costs and scores are real numbers; nothing is rounded to a grid.
//
// Sums of floating-point numbers depend on their order, so limits and scores are compared up to 1e-12 of the sum of
// their largest terms: three costs of 0.1 meet a limit of 0.3, and a choice is optimal up to that.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "io/json.h"

namespace braid::compress {

constexpr int64_t kLimitsMax = 8;
constexpr int64_t kLayersMax = 4096;
constexpr int64_t kVariantsMax = int64_t{1} << 18;  // of all layers together
constexpr double kLargest = 1e100;                  // of a score, a cost or a limit: sums and products stay finite

struct Variant {
  double score = 0;          // of any sign; less is better
  std::vector<double> cost;  // one for each limit, 0 or more
};

struct Instance {
  std::vector<std::vector<Variant>> layers;  // no layer is empty
  std::vector<double> limits;
};

struct Choice {
  std::vector<int64_t> variants;  // an index for each layer
  double score = 0;
  double bound = 0;  // no choice within the limits has a lower score; equals `score` if that is proven optimal
};

// {"layers": [[{"score", "cost": [..]}..]..], "limits": [..]}. Error when a value is missing, not finite, out of
// range, or a list has another length than `limits`.
Instance read_instance(const io::Json& json);

// How far the search goes. Every partial choice that it keeps takes 8 bytes to the end.
struct Effort {
  int64_t width = int64_t{1} << 16;    // partial choices kept after a layer
  int64_t partial = int64_t{1} << 24;  // kept in all: many layers narrow the width
};

// Exact where the partial choices that may lead to a better score fit the width, and otherwise the best that was found
// with a proven bound. Deterministic. `where` names the instance in errors: Error when no choice meets the limits, with
// the first limit that cannot be met and the least that it would have to be.
Choice choose(const Instance& instance, const std::string& where, const Effort& effort = {});

// Sums of a choice's costs, one for each limit.
std::vector<double> costs_of(const Instance& instance, const std::vector<int64_t>& variants);

}  // namespace braid::compress
