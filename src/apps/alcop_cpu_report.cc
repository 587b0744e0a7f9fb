// What braid repro alcop --device cpu prints and writes of its times.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "apps/alcop_cpu.h"
#include "kernels/linear/grouped_study.h"
#include "report/curve.h"
#include "report/table.h"

namespace braid::apps {
namespace {
using nlohmann::ordered_json;
using report::Align;

constexpr int kBlockingShuffles = 100;
constexpr size_t kBlockingTrials = 32;  // in tables and plots
constexpr std::array<const char*, 3> kBlockingOrders = {"model", "random", "grid"};
using BlockingRegret = std::array<std::vector<double>, kBlockingOrders.size()>;

// "packed_tile_fwd_1024x3072x768_t1" without the ends: class and product.
std::string class_of(const BlockingTimes& t) {
  const std::string name = name_of(t.of.key());
  return name.substr(7, name.find('_', 7) - 7);
}
std::string product_of(const BlockingTimes& t) {
  const std::string name = name_of(t.of.key());
  const size_t begin = name.find('_', 7) + 1;
  return name.substr(begin, name.rfind("_t") - begin);
}

BlockingRegret regrets(const BlockingTimes& t) {
  std::vector<int> grid(t.seconds.size());
  std::iota(grid.begin(), grid.end(), 0);
  return {regret_of(t.seconds, t.by_model), random_regret(t.seconds, kBlockingShuffles), regret_of(t.seconds, grid)};
}

double regret_of_default(const BlockingTimes& t) { return t.initial_seconds / t.best() - 1; }
double regret_of_search(const BlockingTimes& t) { return t.searched_seconds / t.best() - 1; }

// BlockingMeans over the products of a class, up to kBlockingTrials; a smaller space stays at its last.
struct BlockingMeans {
  BlockingRegret regret{};
  double initial = 0, searched = 0, products = 0;
};
std::map<std::string, BlockingMeans> blocking_means(const BlockingStudy& study) {
  std::map<std::string, BlockingMeans> all;
  for (const BlockingTimes& t : study.products) {
    BlockingMeans& m = all[class_of(t)];
    const BlockingRegret own = regrets(t);
    m.products += 1;
    m.initial += regret_of_default(t);
    m.searched += regret_of_search(t);
    for (size_t o = 0; o < own.size(); ++o) {
      m.regret[o].resize(kBlockingTrials);
      for (size_t k = 0; k < kBlockingTrials; ++k) m.regret[o][k] += own[o][std::min(k, own[o].size() - 1)];
    }
  }
  for (auto& [name, m] : all) {
    m.initial /= m.products, m.searched /= m.products;
    for (std::vector<double>& r : m.regret) {
      for (double& v : r) v /= m.products;
    }
  }
  return all;
}

std::string share(double v) { return fmt::format("{:.1f}%", 100 * v); }

}  // namespace

std::string blocking_csv(const BlockingStudy& study) {
  std::string text =
      "class,way,tokens,w_rows,w_cols,rows,cols,depth,ahead,us,modelled_us,default_us,searched,searched_us,search_s,"
      "rounds,machine\n";
  std::string machine = study.machine;
  std::ranges::replace(machine, ',', ';');
  for (const BlockingTimes& t : study.products) {
    const std::string product = product_of(t);
    for (size_t i = 0; i < t.space.size(); ++i) {
      const packed::Blocking& b = t.space[i];
      text += fmt::format("{},{},{},{},{},{},{},{},{},{:.2f},{:.2f},{:.2f},{},{:.2f},{:.2f},{},{}\n", class_of(t),
                          product.substr(0, product.find('_')), t.of.tokens, t.of.w_rows, t.of.w_cols, b.rows, b.cols,
                          b.depth, b.ahead, 1e6 * t.seconds[i], 1e6 * t.modelled[i], 1e6 * t.initial_seconds,
                          text_of(t.searched), 1e6 * t.searched_seconds, t.search_seconds, study.rounds, machine);
    }
  }
  return text;
}

std::string blocking_svg(const BlockingStudy& study) {
  report::Curve curve{.title = "blocking of training products: regret by trials, one thread, measured",
                      .x_label = "trials",
                      .y_label = "slower than the best of all, %"};
  for (const auto& [name, m] : blocking_means(study)) {
    for (size_t o = 0; o < m.regret.size(); ++o) {
      report::Series series{.label = fmt::format("{}, {}", kBlockingOrders[o], name), .points = {}};
      for (size_t k = 0; k < m.regret[o].size(); ++k)
        series.points.emplace_back(static_cast<double>(k + 1), 100 * m.regret[o][k]);
      curve.series.push_back(std::move(series));
    }
  }
  return report::svg(curve);
}

std::string blocking_json(const BlockingStudy& study) {
  ordered_json products = ordered_json::array(), regret = ordered_json::array();
  for (const BlockingTimes& t : study.products) {
    const auto at = static_cast<size_t>(std::ranges::min_element(t.seconds) - t.seconds.begin());
    products.push_back({{"class", class_of(t)},
                        {"product", product_of(t)},
                        {"tokens", t.of.tokens},
                        {"points", t.space.size()},
                        {"best", text_of(t.space[at])},
                        {"best_us", 1e6 * t.best()},
                        {"gflops", 1e-9 * t.of.flops() / t.best()},
                        {"default", text_of(t.initial)},
                        {"default_us", 1e6 * t.initial_seconds},
                        {"searched", text_of(t.searched)},
                        {"searched_us", 1e6 * t.searched_seconds},
                        {"search_seconds", t.search_seconds},
                        {"slowest_us", 1e6 * *std::ranges::max_element(t.seconds)}});
  }
  for (const auto& [name, m] : blocking_means(study))
    regret.push_back({{"class", name},
                      {kBlockingOrders[0], m.regret[0]},
                      {kBlockingOrders[1], m.regret[1]},
                      {kBlockingOrders[2], m.regret[2]},
                      {"default", m.initial},
                      {"searched", m.searched}});
  const ordered_json all = {{"machine", study.machine},
                            {"measured", true},
                            {"threads", 1},
                            {"rounds", study.rounds},
                            {"regret", std::move(regret)},
                            {"products", std::move(products)}};
  return all.dump(1);
}

std::string blocking_text(const BlockingStudy& study) {
  report::Table table({{"class"},
                       {"product: tokens x rows x columns of w"},
                       {"points", Align::right},
                       {"GFLOP/s of the best", Align::right},
                       {"best blocking"},
                       {"default slower by", Align::right},
                       {"after the search", Align::right},
                       {"model's first", Align::right},
                       {"of ten", Align::right},
                       {"slowest", Align::right}});
  for (const BlockingTimes& t : study.products) {
    const auto at = static_cast<size_t>(std::ranges::min_element(t.seconds) - t.seconds.begin());
    const std::vector<double> model = regrets(t)[0];
    table.row({class_of(t), product_of(t), fmt::to_string(t.space.size()),
               fmt::format("{:.0f}", 1e-9 * t.of.flops() / t.best()), text_of(t.space[at]), share(regret_of_default(t)),
               share(regret_of_search(t)), share(model[0]), share(model[std::min<size_t>(9, model.size() - 1)]),
               share(*std::ranges::max_element(t.seconds) / t.best() - 1)});
  }
  std::string text = table.markdown();
  for (const auto& [name, m] : blocking_means(study)) {
    report::Table regret({{fmt::format("trials, {}", name)},
                          {kBlockingOrders[0], Align::right},
                          {kBlockingOrders[1], Align::right},
                          {kBlockingOrders[2], Align::right}});
    for (const size_t k : {1, 2, 3, 5, 8, 10, 16, 24, 32})
      regret.row({fmt::to_string(k), share(m.regret[0][k - 1]), share(m.regret[1][k - 1]), share(m.regret[2][k - 1])});
    text +=
        fmt::format("\n{}default {}, after the search {}\n", regret.markdown(), share(m.initial), share(m.searched));
  }
  return text + fmt::format(
                    "\nSlower than the best of all points, by trials: means over products. {}, one thread by "
                    "its CPU clock,\nmedians of {} interleaved rounds, of the fastest eight over three times "
                    "as many; {} shuffles.",
                    study.machine, study.rounds, kBlockingShuffles);
}

}  // namespace braid::apps
