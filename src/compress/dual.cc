#include "compress/dual.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace braid::compress {
namespace {

constexpr double kAllowance = 1e-12;  // of the sum of the largest terms; choice.h
constexpr int64_t kSweeps = 3, kHalvings = 60, kDoublings = 200;
constexpr int64_t kSteps = 1500, kPatience = 20;

double dot(const double* a, std::span<const double> b) {
  double sum = 0;
  for (size_t k = 0; k < b.size(); ++k) sum += a[k] * b[k];
  return sum;
}

// Walks over prices and remembers the best bound and the best choice.
class Ascent {
 public:
  explicit Ascent(const Problem& problem) : problem_(problem) {
    best_.prices.assign(static_cast<size_t>(problem.limits), 0.0);
    best_.bound = -kInfinity;
    best_.score = kInfinity;
    at(best_.prices);
  }

  const Dual& best() const { return best_; }

  DualPoint at(const std::vector<double>& prices) {
    DualPoint point = dual_at(problem_, prices);
    if (point.bound > best_.bound) {
      best_.bound = point.bound;
      best_.prices = prices;
    }
    if (point.fits && point.score < best_.score) {
      best_.score = point.score;
      best_.variants = point.variants;
    }
    return point;
  }

  // The bound is concave in each price, and falls where the limit is not used up: bisection finds its maximum.
  void line(size_t k) {
    std::vector<double> prices = best_.prices;
    const auto cheap = [&](double price) {
      prices[k] = price;
      return at(prices).used[k] > problem_.limit[k];
    };
    if (!cheap(0)) return;
    double low = 0, high = problem_.score_total > 0 ? problem_.score_total : 1;
    for (int64_t i = 0; i < kDoublings && cheap(high); ++i) {
      low = high;
      high *= 2;
    }
    for (int64_t i = 0; i < kHalvings; ++i) {
      const double middle = low + (high - low) / 2;
      (cheap(middle) ? low : high) = middle;
    }
  }

  // Steps along the excess over the limits with Polyak's length, halved when the bound does not rise.
  void subgradient() {
    std::vector<double> prices = best_.prices;
    double length = 1;
    int64_t without = 0;
    for (int64_t step = 0; step < kSteps && length > 1e-6; ++step) {
      const double before = best_.bound;
      const DualPoint point = at(prices);
      without = best_.bound > before ? 0 : without + 1;
      if (without == kPatience) {
        length /= 2;
        without = 0;
        prices = best_.prices;
        continue;
      }
      double square = 0;
      for (size_t k = 0; k < prices.size(); ++k) {
        const double excess = point.used[k] - problem_.limit[k];
        if (excess > 0 || prices[k] > 0) square += excess * excess;
      }
      const double target = std::min(best_.score, problem_.score_total);
      const double gap = target - point.bound;
      if (!(square > 0) || !(gap > problem_.tolerance)) return;
      for (size_t k = 0; k < prices.size(); ++k)
        prices[k] = std::max(0.0, prices[k] + length * gap / square * (point.used[k] - problem_.limit[k]));
    }
  }

 private:
  const Problem& problem_;
  Dual best_;
};

}  // namespace

Problem::Problem(const Instance& instance)
    : limits(std::ssize(instance.limits)), begin{0}, limit(instance.limits), total(instance.limits.size()) {
  std::vector<double> largest(limit.size());
  for (const std::vector<Variant>& layer : instance.layers) {
    double magnitude = 0;
    std::vector<double> most(limit.size());
    for (const Variant& variant : layer) {
      score.push_back(variant.score);
      magnitude = std::max(magnitude, std::abs(variant.score));
      for (size_t k = 0; k < limit.size(); ++k) {
        cost.push_back(variant.cost[k]);
        most[k] = std::max(most[k], variant.cost[k]);
      }
    }
    begin.push_back(std::ssize(score));
    score_total += magnitude;
    for (size_t k = 0; k < limit.size(); ++k) {
      total[k] += most[k];
      largest[k] = std::max(largest[k], most[k]);
    }
  }
  tolerance = kAllowance * score_total;
  for (size_t k = 0; k < limit.size(); ++k) {
    int exponent = 0;
    std::frexp(largest[k], &exponent);
    for (size_t i = k; i < cost.size(); i += limit.size()) cost[i] = std::ldexp(cost[i], -exponent);
    total[k] = std::ldexp(total[k], -exponent);
    limit[k] = std::ldexp(limit[k], -exponent) + kAllowance * total[k];
    limit[k] = std::min(limit[k], 2 * total[k]);  // the same choices, and sums that do not lose their bits to it
  }
}

double Problem::priced(int64_t variant, std::span<const double> prices) const {
  return score[static_cast<size_t>(variant)] + dot(cost_of(variant), prices);
}

double Problem::rounding(std::span<const double> prices) const {
  double terms = score_total;
  for (size_t k = 0; k < prices.size(); ++k) terms += prices[k] * (total[k] + std::abs(limit[k]));
  return static_cast<double>(layers() + 4 * limits + 4) * std::numeric_limits<double>::epsilon() * terms;
}

DualPoint dual_at(const Problem& problem, std::span<const double> prices) {
  DualPoint point;
  point.used.assign(prices.size(), 0.0);
  point.fits = true;
  double sum = 0;
  for (int64_t l = 0; l < problem.layers(); ++l) {
    int64_t best = -1;
    double least = kInfinity;
    for (int64_t v = problem.begin[static_cast<size_t>(l)]; v < problem.begin[static_cast<size_t>(l) + 1]; ++v) {
      const double priced = problem.priced(v, prices);
      if (priced < least) {
        least = priced;
        best = v;
      }
    }
    sum += least;
    point.variants.push_back(best);
    point.score += problem.score[static_cast<size_t>(best)];
    for (size_t k = 0; k < prices.size(); ++k) point.used[k] += problem.cost_of(best)[k];
  }
  for (size_t k = 0; k < prices.size(); ++k) point.fits = point.fits && point.used[k] <= problem.limit[k];
  point.bound = sum - dot(problem.limit.data(), prices) - problem.rounding(prices);
  return point;
}

Dual maximise_dual(const Problem& problem) {
  Ascent ascent(problem);
  for (int64_t sweep = 0; sweep < (problem.limits > 1 ? kSweeps : 1); ++sweep) {
    for (size_t k = 0; k < static_cast<size_t>(problem.limits); ++k) ascent.line(k);
  }
  if (problem.limits > 1) ascent.subgradient();
  return ascent.best();
}

}  // namespace braid::compress
