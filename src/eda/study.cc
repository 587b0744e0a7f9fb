#include "eda/study.h"

#include <algorithm>

#include "eda/metrics.h"

namespace braid::eda {
namespace {

std::vector<double> counts_of(const Recipe& recipe) {
  std::vector<double> counts(kSteps.size());
  for (const uint8_t step : recipe) counts[step] += 1;
  return counts;
}

// Weights of both targets, in deviations, from trained samples of designs.
std::array<std::vector<double>, kTargetCount> fit_counts(const Labels& labels, const Split& split,
                                                         const std::vector<Scale>& scales,
                                                         std::optional<int32_t> design) {
  constexpr double kRidge = 1;  // the counts add up to the length: without it they are singular
  std::array<std::vector<double>, kTargetCount> weights;
  for (size_t t = 0; t < kTargetCount; ++t) {
    std::vector<std::vector<double>> rows;
    std::vector<double> values;
    for (const Sample& s : split.samples) {
      const Scale& scale = scales[static_cast<size_t>(s.design)];
      if (s.part != Part::trained || (design && s.design != *design) || scale.deviation[t] == 0) continue;
      const double value =
          labels.designs[static_cast<size_t>(s.design)].outcomes[static_cast<size_t>(s.recipe)].values[t];
      rows.push_back(counts_of(labels.recipes[static_cast<size_t>(s.recipe)]));
      values.push_back((value - scale.mean[t]) / scale.deviation[t]);
    }
    weights[t] = rows.empty() ? std::vector<double>(kSteps.size() + 1) : least_squares(rows, values, kRidge);
  }
  return weights;
}

}  // namespace

std::vector<std::vector<Values>> count_fits(const Labels& labels, const Split& split) {
  const std::vector<Scale> scales = scales_of(labels, split);
  const auto of_all = fit_counts(labels, split, scales, std::nullopt);
  std::vector<std::vector<Values>> fits;
  for (size_t d = 0; d < labels.designs.size(); ++d) {
    const auto weights =
        split.held_designs[d] != 0 ? of_all : fit_counts(labels, split, scales, static_cast<int32_t>(d));
    std::vector<Values>& values = fits.emplace_back();
    for (const Recipe& recipe : labels.recipes) {
      const std::vector<double> counts = counts_of(recipe);
      Values& v = values.emplace_back();
      for (size_t t = 0; t < kTargetCount; ++t) {
        v[t] = weights[t].back();
        for (size_t i = 0; i < counts.size(); ++i) v[t] += weights[t][i] * counts[i];
      }
    }
  }
  return fits;
}

std::vector<Score> scores_of(const Labels& labels, const Split& split,
                             const std::vector<std::vector<Values>>& predicted) {
  const std::vector<Scale> scales = scales_of(labels, split);
  const std::vector<std::vector<Values>> fits = count_fits(labels, split);
  std::vector<Score> scores;
  for (size_t d = 0; d < labels.designs.size(); ++d) {
    for (const Part part : {Part::recipes, Part::designs, Part::both}) {
      const std::vector<Sample> samples = split.of(static_cast<int32_t>(d), part);
      if (std::ssize(samples) < kLeastSamples) continue;
      for (size_t t = 0; t < kTargetCount; ++t) {
        std::vector<double> values, own, fit, deviations;
        for (const Sample& s : samples) {
          const auto r = static_cast<size_t>(s.recipe);
          values.push_back(labels.designs[d].outcomes[r].values[t]);
          own.push_back(predicted[d][r][t]);
          fit.push_back(fits[d][r][t]);
          deviations.push_back((values.back() - scales[d].mean[t]) / std::max(scales[d].deviation[t], 1e-12));
        }
        const bool ordered = std::ranges::any_of(values, [&](double v) { return v != values[0]; });
        const auto coefficient = [&](const std::vector<double>& by) {
          return ordered ? std::optional(spearman(by, values).value_or(0)) : std::nullopt;
        };
        Score& score = scores.emplace_back(Score{.design = static_cast<int32_t>(d),
                                                 .part = part,
                                                 .target = t,
                                                 .samples = std::ssize(samples),
                                                 .spearman = coefficient(own),
                                                 .counts = coefficient(fit),
                                                 .constant = ordered && !spearman(own, values)});
        if (part == Part::recipes && scales[d].deviation[t] > 0) score.determination = determination(own, deviations);
        for (size_t k = 0; k < kTops.size(); ++k) {
          score.regret[k] = top_regret(own, values, kTops[k]);
          score.counts_regret[k] = top_regret(fit, values, kTops[k]);
          score.chance[k] = chance_regret(values, kTops[k]);
        }
      }
    }
  }
  return scores;
}

Summary summary_of(const std::vector<Score>& scores, Part part, size_t target) {
  Summary sum{.least = 1};
  double determined = 0, determination = 0;
  for (const Score& s : scores) {
    if (s.part != part || s.target != target) continue;
    if (!s.spearman) {
      ++sum.left_out;
      continue;
    }
    ++sum.designs;
    sum.constant += s.constant ? 1 : 0;
    sum.samples += s.samples;
    sum.spearman += *s.spearman;
    sum.least = std::min(sum.least, *s.spearman);
    sum.above_half += *s.spearman > 0.5 ? 1 : 0;
    sum.counts += s.counts.value_or(0);
    if (s.determination) {
      determination += *s.determination;
      ++determined;
    }
    for (size_t k = 0; k < kTops.size(); ++k) {
      sum.regret[k] += s.regret[k];
      sum.counts_regret[k] += s.counts_regret[k];
      sum.chance[k] += s.chance[k];
    }
  }
  const auto n = static_cast<double>(std::max<int64_t>(sum.designs, 1));
  sum.spearman /= n;
  sum.counts /= n;
  if (determined > 0) sum.determination = determination / determined;
  for (size_t k = 0; k < kTops.size(); ++k) {
    sum.regret[k] /= n;
    sum.counts_regret[k] /= n;
    sum.chance[k] /= n;
  }
  return sum;
}

}  // namespace braid::eda
