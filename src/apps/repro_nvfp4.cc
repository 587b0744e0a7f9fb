// braid repro nvfp4-pretraining: what does training in NVFP4 cost in loss, and what do the parts of its recipe give? A
// small hybrid is trained on a grammar of known entropy in BF16 and in each format, from the same weights and rows of
// a seed. Numerics only: formats are emulated. bench/low_precision.py does the same with 8.5 M parameters, for days.
//   NVFP4 pretraining (arXiv 2509.25149)
#include <fmt/format.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/arms.h"
#include "apps/commands.h"
#include "apps/shrink_study.h"
#include "report/curve.h"

namespace braid::apps {
namespace {
using nlohmann::ordered_json;

constexpr const char* kNvfp4Quoted =
    "NVFP4 pretraining (quoted): 12 B hybrid, 10 T tokens, within 1% of FP8's loss, 1.5% as the rate decays;\n"
    "8 B, 1 T tokens: NVFP4 1.5% above BF16, MXFP4 2.5%, which needs 36% more tokens to match.";

struct FormatArm {
  const char* name;
  ordered_json precision;
};
std::vector<FormatArm> format_arms() {
  return {{"bf16", nullptr},
          {"fp8", {{"recipe", "fp8"}}},
          {"mxfp4", {{"recipe", "mxfp4"}}},
          {"nvfp4", {{"recipe", "nvfp4"}}},
          {"nvfp4, nearest gradients", {{"recipe", "nvfp4"}, {"stochastic", false}}},
          {"nvfp4, no Hadamard", {{"recipe", "nvfp4"}, {"hadamard", false}}},
          {"nvfp4, 1-D weight scales", {{"recipe", "nvfp4"}, {"weight_scales", "1d"}}}};
}

// Losses of training, the mean of each of up to kPoints parts of a run, summed over seeds.
class FormatCurves {
 public:
  explicit FormatCurves(int64_t steps) : steps_(steps), parts_(std::min(steps, kPoints)) {}
  void add(const std::string& arm, int64_t step, double loss) {
    auto& points = of_.try_emplace(arm, static_cast<size_t>(parts_)).first->second;
    Point& p = points[static_cast<size_t>((step - 1) * parts_ / steps_)];
    p.sum += loss;
    ++p.count;
  }
  report::Curve picture(const ShrinkArgs& o) const {
    report::Curve curve{
        .title = "training loss by format, emulated (measured)", .x_label = "tokens", .y_label = "loss above BF16, %"};
    const auto base = of_.find("bf16");
    for (const auto& [name, points] : of_) {
      if (name == "bf16") continue;
      report::Series series{.label = name, .points = {}};
      for (size_t i = 0; i < points.size(); ++i)
        series.points.emplace_back(o.tokens(steps_ * static_cast<int64_t>(i + 1) / parts_),
                                   100 * (points[i].mean() / base->second[i].mean() - 1));
      curve.series.push_back(std::move(series));
    }
    return curve;
  }

 private:
  static constexpr int64_t kPoints = 30;
  struct Point {
    double sum = 0;
    int64_t count = 0;
    double mean() const { return sum / static_cast<double>(count); }  // NaN, which pictures leave out, of none
  };
  int64_t steps_, parts_;
  std::map<std::string, std::vector<Point>> of_{};
};

bool nvfp4_seed(const ShrinkArgs& o, int64_t number, ArmStudy& study, FormatCurves& curves) {
  ShrinkSeed seed(o, number);
  study.entropy.push_back(seed.entropy());
  for (const FormatArm& arm : format_arms()) {
    double loss = 0;
    const train::Watcher watcher{.step = [&](const train::StepLog& log) { curves.add(arm.name, log.step, log.loss); },
                                 .held_out = [&](const train::HeldOutLog& log) { loss = log.loss; }};
    if (!seed.train_parent_as(arm.name, arm.precision, watcher)) return false;
    study.at(arm.name, 1).add(seed.params(arm.name), o.tokens(o.steps), loss);
  }
  return true;
}

int repro_nvfp4(ShrinkArgs o) {
  o.begin();
  ArmStudy study{.name = "nvfp4-pretraining", .title = "", .reference = "bf16", .percent = true};
  FormatCurves curves(o.steps);
  const int code = over_seeds(
      o, study, [&](const ShrinkArgs& args, int64_t seed, ArmStudy& of) { return nvfp4_seed(args, seed, of, curves); },
      [&](const ArmStudy&) { return curves.picture(o); });
  if (code != 0) return code;
  print_study(o, study,
              std::string("Differences in % of BF16's loss, of the same seed; formats are emulated.\n") + kNvfp4Quoted);
  return 0;
}

}  // namespace

Action setup_repro_nvfp4(Cli& cli) {
  auto o = std::make_shared<ShrinkArgs>();
  o->dir = "nvfp4-pretraining";
  o->steps = 300;
  o->declare(cli, false);
  return [o] { return repro_nvfp4(*o); };
}

}  // namespace braid::apps
