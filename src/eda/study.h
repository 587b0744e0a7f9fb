// How well a model orders recipes within each design, beside a plain fit of step counts and beside chance.
#pragma once
#include <array>
#include <optional>
#include <vector>

#include "eda/model.h"

namespace braid::eda {

inline constexpr std::array<int64_t, 6> kTops = {1, 2, 3, 5, 10, 20};
inline constexpr int64_t kLeastSamples = 8;  // of a design that is scored: fewer say nothing of an order

// One design, one target, over its samples of one part.
struct Score {
  int32_t design = 0;
  Part part = Part::recipes;
  size_t target = 0;
  int64_t samples = 0;
  std::optional<double> spearman{};       // none: the values are constant; 0 where the predictions alone are
  std::optional<double> counts{};         // Spearman's coefficient of the fit of step counts
  bool constant = false;                  // the predictions are, where the values are not: they order nothing
  std::optional<double> determination{};  // of trained designs, in their deviations
  std::array<double, kTops.size()> regret{}, counts_regret{}, chance{};
};

// `predicted`: of all designs. Designs with too few samples of a part have no score of it.
std::vector<Score> scores_of(const Labels& labels, const Split& split,
                             const std::vector<std::vector<Values>>& predicted);

// Least squares on how often a recipe has each step: of a trained design on its own trained samples, of others on those
// of all trained designs.
std::vector<std::vector<Values>> count_fits(const Labels& labels, const Split& split);

// The scores of a part and a target together.
struct Summary {
  int64_t designs = 0, samples = 0;            // whose values differ
  int64_t constant = 0;                        // of those with one prediction for all, a coefficient of 0
  int64_t left_out = 0;                        // designs whose values are all alike: there is no order
  double spearman = 0, least = 0, counts = 0;  // means and the least over designs
  int64_t above_half = 0;                      // designs with a coefficient above 0.5
  std::optional<double> determination{};
  std::array<double, kTops.size()> regret{}, counts_regret{}, chance{};
};
Summary summary_of(const std::vector<Score>& scores, Part part, size_t target);

}  // namespace braid::eda
