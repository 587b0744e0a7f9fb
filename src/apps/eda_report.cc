#include "apps/eda_report.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "report/curve.h"

namespace braid::apps {

std::string eda_csv(const EdaStudy& s) {
  std::string text = "fold,design,held_out,target,samples,spearman,recipe_alone,step_counts,determination";
  for (const char* of : {"regret", "counts_regret", "chance"}) {
    for (const int64_t k : eda::kTops) text += fmt::format(",{}_{}", of, k);
  }
  const auto number = [](std::optional<double> v) { return v ? fmt::format(",{:.4f}", *v) : std::string(","); };
  for (size_t f = 0; f < s.folds.size(); ++f) {
    const eda::FoldResult& result = s.results[f];
    for (size_t i = 0; i < result.scores.size(); ++i) {
      const eda::Score& r = result.scores[i];
      text += fmt::format("\n{},{},{},{},{}", s.folds[f], s.labels.designs[static_cast<size_t>(r.design)].name,
                          eda::kPartNames[static_cast<size_t>(r.part)], eda::kTargets[r.target], r.samples);
      text += number(r.spearman) + number(result.alone[i].spearman) + number(r.counts) + number(r.determination);
      for (const auto& list : {r.regret, r.counts_regret, r.chance}) {
        for (const double v : list) text += fmt::format(",{:.5f}", v);
      }
    }
  }
  return text + "\n";
}

std::string eda_svg(const EdaStudy& s) {
  report::Curve curve{.title = "area lost by trying only the recipes that are put first (measured)",
                      .x_label = "recipes tried",
                      .y_label = "regret, percent of the best area",
                      .log_x = true};
  for (const eda::Part part : {eda::Part::recipes, eda::Part::designs}) {
    const eda::Summary sum = eda::summary_of(s.scores, part, 2);
    const auto add = [&](const char* by, const auto& list) {
      report::Series series{.label = fmt::format("{}, {}", eda::kPartNames[static_cast<size_t>(part)], by),
                            .points = {}};
      for (size_t k = 0; k < eda::kTops.size(); ++k)
        series.points.emplace_back(static_cast<double>(eda::kTops[k]), 100 * list[k]);
      curve.series.push_back(std::move(series));
    };
    add("network", sum.regret);
    add("step counts", sum.counts_regret);
    add("chance", sum.chance);
  }
  return report::svg(curve);
}

}  // namespace braid::apps
