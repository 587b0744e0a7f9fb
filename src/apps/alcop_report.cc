#include "apps/alcop_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "kernels/linear/grouped_pipeline.h"
#include "report/curve.h"
#include "report/table.h"

namespace braid::apps {
namespace {
using nlohmann::ordered_json;

constexpr int kShuffles = 100;
constexpr std::array<const char*, 3> kOrders = {"model", "random", "list"};

const Pipeline& pipeline(const GroupedTimes& t, size_t i) { return kPipelines[static_cast<size_t>(t.pipelines[i])]; }

std::string shape_text(const GroupedCase& c) {
  return fmt::format("{} x {}, {} tokens, {} rows", c.rows, c.cols, c.tokens, c.height);
}

double tflops(const GroupedTimes& t) { return 1e-12 * t.flops() / t.best(); }

// Regret after k trials in each of kOrders.
using Regret = std::array<std::vector<double>, kOrders.size()>;

Regret regrets(const GroupedTimes& t) {
  std::vector<int> list(t.seconds.size());
  std::iota(list.begin(), list.end(), 0);
  return {regret_of(t.seconds, t.by_model), random_regret(t.seconds, kShuffles), regret_of(t.seconds, list)};
}

// The mean over all cases of a height.
std::map<int64_t, Regret> mean_regrets(const AlcopStudy& study) {
  std::map<int64_t, Regret> sums;
  std::map<int64_t, double> count;
  for (const GroupedTimes& t : study.cases) {
    const Regret own = regrets(t);
    Regret& sum = sums[t.of.height];
    count[t.of.height] += 1;
    for (size_t o = 0; o < own.size(); ++o) {
      sum[o].resize(own[o].size());
      for (size_t k = 0; k < own[o].size(); ++k) sum[o][k] += own[o][k];
    }
  }
  for (auto& [height, regret] : sums) {
    for (std::vector<double>& r : regret) {
      for (double& v : r) v /= count[height];
    }
  }
  return sums;
}

// The densities of one shape and height.
std::vector<std::vector<const GroupedTimes*>> by_shape(const AlcopStudy& study) {
  std::vector<std::vector<const GroupedTimes*>> out;
  for (const GroupedTimes& t : study.cases) {
    if (out.empty() || shape_text(out.back()[0]->of) != shape_text(t.of)) out.emplace_back();
    out.back().push_back(&t);
  }
  return out;
}

double times_as_fast(const GroupedTimes& t) { return t.dense / t.whole; }

// Where the ratios cross one, along a line between logarithms; 0: below the first density, 1: not below 1.
double break_even(const std::vector<const GroupedTimes*>& densities) {
  if (times_as_fast(*densities[0]) < 1) return 0;
  for (size_t i = 1; i < densities.size(); ++i) {
    if (times_as_fast(*densities[i]) >= 1) continue;
    const double a = std::log(times_as_fast(*densities[i - 1])), b = std::log(times_as_fast(*densities[i]));
    const double from = densities[i - 1]->of.density, to = densities[i]->of.density;
    return from * std::pow(to / from, a / (a - b));
  }
  return 1;
}

std::string break_even_text(const std::vector<const GroupedTimes*>& densities) {
  const double at = break_even(densities);
  return at == 0   ? fmt::format("< {:g}", densities[0]->of.density)
         : at == 1 ? std::string("none")
                   : fmt::format("{:.2f}", at);
}

std::string speed_table(const AlcopStudy& study) {
  const auto shapes = by_shape(study);
  std::vector<report::Column> columns = {{"product, rows of a group"}};
  for (const GroupedTimes* t : shapes[0]) columns.push_back({fmt::format("{:g}", t->of.density), report::Align::right});
  for (const char* title : {"break-even", "TFLOP/s at 1", "of the roof"})
    columns.push_back({title, report::Align::right});
  report::Table table(std::move(columns));
  for (const auto& shape : shapes) {
    std::vector<std::string> row = {shape_text(shape[0]->of)};
    for (const GroupedTimes* t : shape) row.push_back(fmt::format("{:.2f}", times_as_fast(*t)));
    row.push_back(break_even_text(shape));
    row.push_back(fmt::format("{:.0f}", tflops(*shape.back())));
    row.push_back(fmt::format("{:.0f}%", 100 * tflops(*shape.back()) / study.roofs.bf16_tflops));
    table.row(std::move(row));
  }
  return table.markdown();
}

std::string regret_table(int64_t height, const Regret& regret) {
  report::Table table({{fmt::format("trials, groups of {} rows", height)},
                       {kOrders[0], report::Align::right},
                       {kOrders[1], report::Align::right},
                       {kOrders[2], report::Align::right}});
  for (size_t k = 0; k < regret[0].size(); ++k) {
    std::vector<std::string> row = {fmt::format("{}", k + 1)};
    for (const std::vector<double>& r : regret) row.push_back(fmt::format("{:.1f}%", 100 * r[k]));
    table.row(std::move(row));
  }
  return table.markdown();
}

// Where shapes differ in their stages alone, how many times as fast as without a pipeline; means over the cases.
std::string stages_table(const AlcopStudy& study) {
  std::map<std::array<int, 2>, std::vector<double>> gains;  // by height and stages
  for (const GroupedTimes& t : study.cases) {
    for (size_t plain = 0; plain < t.pipelines.size(); ++plain) {
      if (pipeline(t, plain).stages != 1) continue;
      for (size_t i = 0; i < t.pipelines.size(); ++i) {
        Pipeline p = pipeline(t, i);
        p.stages = 1;
        const Pipeline& other = pipeline(t, plain);
        if (p.tokens == other.tokens && p.depth == other.depth && p.row_warps == other.row_warps &&
            p.token_warps == other.token_warps)
          gains[{p.height, pipeline(t, i).stages}].push_back(t.seconds[plain] / t.seconds[i]);
      }
    }
  }
  report::Table table(
      {{"rows of a group"}, {"stages", report::Align::right}, {"times as fast as one stage", report::Align::right}});
  for (const auto& [key, list] : gains)
    table.row(
        {fmt::format("{}", key[0]), fmt::format("{}", key[1]),
         fmt::format("{:.2f}", std::accumulate(list.begin(), list.end(), 0.0) / static_cast<double>(list.size()))});
  return table.markdown();
}

}  // namespace

std::string alcop_svg(const AlcopStudy& study) {
  report::Curve curve{.title = fmt::format("shape of the main loop: regret by trials, {}, measured", study.gpu.name),
                      .x_label = "trials",
                      .y_label = "slower than the best of all, %"};
  for (const auto& [height, regret] : mean_regrets(study)) {
    for (size_t o = 0; o < regret.size(); ++o) {
      report::Series series{.label = fmt::format("{}, groups of {}", kOrders[o], height), .points = {}};
      for (size_t k = 0; k < regret[o].size(); ++k)
        series.points.emplace_back(static_cast<double>(k + 1), 100 * regret[o][k]);
      curve.series.push_back(std::move(series));
    }
  }
  return report::svg(curve);
}

std::string alcop_json(const AlcopStudy& study) {
  ordered_json products = ordered_json::array(), regret = ordered_json::array(), shapes = ordered_json::array();
  for (const GroupedTimes& t : study.cases) {
    const size_t best = static_cast<size_t>(std::min_element(t.seconds.begin(), t.seconds.end()) - t.seconds.begin());
    const Pipeline& p = pipeline(t, best);
    products.push_back({{"rows", t.of.rows},
                        {"cols", t.of.cols},
                        {"tokens", t.of.tokens},
                        {"height", t.of.height},
                        {"density", t.of.density},
                        {"best", {p.tokens, p.depth, p.stages, p.row_warps, p.token_warps}},
                        {"main_loop_us", 1e6 * t.best()},
                        {"transposes_us", 1e6 * t.transposes},
                        {"product_us", 1e6 * t.whole},
                        {"product_untuned_us", 1e6 * t.untuned},
                        {"cublaslt_us", 1e6 * t.dense},
                        {"times_as_fast", times_as_fast(t)},
                        {"tflops", tflops(t)},
                        {"difference", t.error}});
  }
  for (const auto& [height, r] : mean_regrets(study))
    regret.push_back({{"height", height}, {kOrders[0], r[0]}, {kOrders[1], r[1]}, {kOrders[2], r[2]}});
  for (const auto& shape : by_shape(study))
    shapes.push_back({{"product", shape_text(shape[0]->of)}, {"break_even", break_even(shape)}});
  const ordered_json j = {{"gpu", study.gpu.name},
                          {"measured", true},
                          {"stored_times", study.stored},
                          {"rounds", study.rounds},
                          {"copy_gbs", study.roofs.copy_gbs},
                          {"bf16_tflops", study.roofs.bf16_tflops},
                          {"break_even", std::move(shapes)},
                          {"regret", std::move(regret)},
                          {"products", std::move(products)}};
  return j.dump(1);
}

std::string alcop_text(const AlcopStudy& study) {
  std::string text = speed_table(study);
  text += fmt::format(
      "\nTimes as fast as cuBLASLt's dense product of the same weight, by density; both transposes counted. {},\n"
      "medians of {} interleaved rounds, caches cold. TFLOP/s: the main loop alone, all columns; roof {:.0f}.\n\n",
      study.gpu.name, study.rounds, study.roofs.bf16_tflops);
  for (const auto& [height, regret] : mean_regrets(study)) text += regret_table(height, regret) + "\n";
  text += fmt::format(
      "Slower than the best of all shapes, means over the products, after trials by the model's order,\n"
      "in random order ({} shuffles) and in the list's.\n\n",
      kShuffles);
  return text + stages_table(study);
}

}  // namespace braid::apps
