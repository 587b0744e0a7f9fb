// Two learners for few points of few features, both with the kernel exp(-gamma |a - b|^2): a support vector machine
// that tells two classes apart (Platt's SMO with the pair that violates the conditions most: Fan, Chen and Lin 2005),
// and kernel ridge regression. Deterministic. Training takes time quadratic, and cubic, in the points.
#pragma once
#include <array>
#include <span>
#include <vector>

namespace braid::comm {

using Features = std::array<double, 3>;

class Svm {
 public:
  static constexpr double kCost = 100;       // the bound of a multiplier
  static constexpr double kAccuracy = 1e-3;  // by how much the conditions of the optimum may be violated

  // A class is +1 or -1; at least one point of each.
  Svm(std::span<const Features> points, std::span<const int> classes, double gamma);
  double margin(const Features& x) const;  // positive: class +1

  std::span<const double> multipliers() const { return multipliers_; }  // of the points; 0 <= a <= kCost

 private:
  std::vector<Features> points_;
  std::vector<double> multipliers_, weights_;  // weights: multiplier times class
  double gamma_, offset_ = 0;
};

// y(x) = mean + sum of weights_i (1 + x_i . x + kernel(x_i, x)): linear far from the points.
class Ridge {
 public:
  static constexpr double kPenalty = 1e-4;

  Ridge(std::span<const Features> points, std::span<const double> values, double gamma);
  double at(const Features& x) const;

 private:
  double kernel(const Features& a, const Features& b) const;

  std::vector<Features> points_;
  std::vector<double> weights_;
  double gamma_, mean_ = 0;
};

}  // namespace braid::comm
