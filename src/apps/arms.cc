#include "apps/arms.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "io/atomic_file.h"
#include "report/curve.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/check.h"

namespace braid::apps {
namespace {

// 97.5% points of Student's t by degrees of freedom, from 1.
constexpr std::array<double, kSeedsMost - 1> kStudent = {12.706, 4.303, 3.182, 2.776, 2.571,
                                                         2.447,  2.365, 2.306, 2.262};

nlohmann::ordered_json by_seed(const std::vector<double>& values) {
  if (values.empty()) return nullptr;
  const Spread s = spread_of(values);
  return {{"mean", s.mean}, {"half_width_95", s.half}, {"by_seed", values}};
}

}  // namespace

Spread spread_of(std::span<const double> values) {
  const auto n = std::ssize(values);
  CHECK(n >= 1 && n <= kSeedsMost, "{} values", n);
  Spread s;
  for (const double v : values) s.mean += v / static_cast<double>(n);
  if (n == 1) return s;
  double squares = 0;
  for (const double v : values) squares += (v - s.mean) * (v - s.mean);
  s.half = kStudent[static_cast<size_t>(n - 2)] * std::sqrt(squares / static_cast<double>((n - 1) * n));
  return s;
}

std::string text_of(const Spread& s, const char* format) {
  const std::string mean = fmt::format(fmt::runtime(format), s.mean);
  return s.half > 0 ? fmt::format("{} ± {:.4f}", mean, s.half) : mean;
}

void Arm::add(int64_t params_of, int64_t tokens_of, double loss) {
  params = params_of;
  tokens = tokens_of;
  after.push_back(loss);
}

void Arm::add(int64_t params_of, int64_t tokens_of, double loss, double loss_before) {
  add(params_of, tokens_of, loss);
  before.push_back(loss_before);
}

Arm& ArmStudy::at(const std::string& arm, double share) {
  const auto found =
      std::find_if(arms.begin(), arms.end(), [&](const Arm& a) { return a.name == arm && a.share == share; });
  return found != arms.end() ? *found : arms.emplace_back(Arm{.name = arm, .share = share});
}

std::vector<double> ArmStudy::differences(const Arm& arm) const {
  std::vector<double> list;
  for (const Arm& other : arms) {
    if (other.name != reference || other.share != arm.share || &other == &arm) continue;
    for (size_t i = 0; i < std::min(arm.after.size(), other.after.size()); ++i)
      list.push_back(percent ? 100 * (arm.after[i] / other.after[i] - 1) : arm.after[i] - other.after[i]);
  }
  return list;
}

report::Curve by_share(const ArmStudy& study) {
  report::Curve curve{
      .title = study.title + " (measured)", .x_label = "share of the parent", .y_label = "held-out loss, nats"};
  for (const Arm& arm : study.arms) {
    if (arm.after.empty()) continue;
    auto series = std::find_if(curve.series.begin(), curve.series.end(),
                               [&](const report::Series& s) { return s.label == arm.name; });
    if (series == curve.series.end())
      series = curve.series.insert(series, report::Series{.label = arm.name, .points = {}});
    series->points.emplace_back(arm.share, spread_of(arm.after).mean);
    std::sort(series->points.begin(), series->points.end());
  }
  return curve;
}

void write_arms(const ArmStudy& study, const report::Curve& curve, const std::filesystem::path& dir) {
  std::string csv = "arm,share,params,tokens,seed,loss_before,loss,entropy\n";
  for (const Arm& arm : study.arms) {
    for (size_t i = 0; i < arm.after.size(); ++i)
      csv += fmt::format("\"{}\",{:g},{},{},{},{},{:.6f},{:.6f}\n", arm.name, arm.share, arm.params, arm.tokens, i,
                         i < arm.before.size() ? fmt::format("{:.6f}", arm.before[i]) : "", arm.after[i],
                         study.entropy.at(i));
  }
  io::write_text_file(dir / (study.name + ".csv"), csv);
  io::write_text_file(dir / (study.name + ".svg"), report::svg(curve));
}

std::string arms_table(const ArmStudy& study) {
  using report::Align;
  report::Table table({{"arm"},
                       {"share", Align::right},
                       {"parameters", Align::right},
                       {"tokens", Align::right},
                       {"loss before", Align::right},
                       {"loss", Align::right},
                       {"against " + study.reference, Align::right}});
  for (const Arm& arm : study.arms) {
    const std::vector<double> differences = study.differences(arm);
    table.row({arm.name, fmt::format("{:g}%", 100 * arm.share), report::count(static_cast<double>(arm.params)),
               report::count(static_cast<double>(arm.tokens)), arm.before.empty() ? "" : text_of(spread_of(arm.before)),
               text_of(spread_of(arm.after)),
               differences.empty() ? "" : text_of(spread_of(differences), study.percent ? "{:+.3f}%" : "{:+.4f}")});
  }
  return table.markdown();
}

nlohmann::ordered_json arms_json(const ArmStudy& study) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Arm& arm : study.arms)
    rows.push_back({{"arm", arm.name},
                    {"share", arm.share},
                    {"params", arm.params},
                    {"tokens", arm.tokens},
                    {"before", by_seed(arm.before)},
                    {"loss", by_seed(arm.after)},
                    {"difference", by_seed(study.differences(arm))}});
  return {{"study", study.name},          {"seeds", std::ssize(study.entropy)},
          {"reference", study.reference}, {"difference_unit", study.percent ? "percent" : "nats"},
          {"entropy", study.entropy},     {"rows", std::move(rows)}};
}

}  // namespace braid::apps
