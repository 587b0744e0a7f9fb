// braid repro spmm-2x2: the sparse product with one channel in the four corners of balance and reduction, and sorted
// slices as the fifth (Huang et al., arXiv 2106.16064). Every thread's share of the work is timed on one thread by
// itself, so that other load does not decide: the slowest is what a team waits for.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/model_args.h"
#include "graph/generate.h"
#include "io/atomic_file.h"
#include "io/ordered_json.h"
#include "report/curve.h"
#include "report/progress.h"
#include "report/table.h"
#include "sparse/problem.h"
#include "sparse/race.h"
#include "sparse/samples.h"
#include "sparse/shares.h"
#include "sys/machine.h"

namespace braid::apps {
namespace {
using nlohmann::ordered_json;
using sparse::Balance;

struct Spmm2x2Args {
  int64_t shares = 16, rounds = 7;
  std::string csv, svg;
  bool quick = false, json = false;
};

struct Corner {
  const char *name, *row;  // row: of spmm's table
  Balance balance;
};
constexpr std::array<Corner, 5> kCorners = {{{"rb_sr", "sr", Balance::rows},
                                             {"rb_pr", "pr", Balance::rows},
                                             {"eb_sr", "sr", Balance::edges},
                                             {"eb_pr", "eb_pr", Balance::edges},
                                             {"sell", "sell", Balance::edges}}};

struct BalanceRow {
  std::string graph{};
  graph::RowStats stats{};
  std::array<double, kCorners.size()> gflops{};  // of a thread, if all take as long as the slowest
  double best() const { return *std::ranges::max_element(gflops); }
};

std::vector<sparse::NamedGraph> balance_graphs(bool quick) {
  const int scale = quick ? 10 : 16;
  const int64_t nodes = int64_t{1} << scale;
  const auto power = [=](double spread) {
    return graph::power_law_graph({.nodes = nodes, .degree = 16, .spread = spread, .seed = 1});
  };
  return {{fmt::format("rmat{}", scale), [=] { return graph::rmat_graph(scale, 16, 1); }},
          {fmt::format("uniform{}", scale), [=] { return graph::uniform_graph(nodes, nodes * 27 / 2, 1); }},
          {"grid", [=] { return graph::grid_graph(int64_t{1} << scale / 2, int64_t{1} << scale / 2); }},
          {"powerlaw_s1", [=] { return power(1); }},
          {"powerlaw_s4", [=] { return power(4); }},
          {"star", [=] { return graph::star_graph(nodes); }}};
}

// The slowest share of each corner.
BalanceRow measure_balance(const std::string& name, const graph::Csr& csr, const Spmm2x2Args& o) {
  BalanceRow row{.graph = name, .stats = graph::stats_of(csr)};
  for (size_t k = 0; k < kCorners.size(); ++k) {
    const std::vector<graph::Csr> shares = sparse::shares_of(csr, o.shares, kCorners[k].balance);
    std::deque<sparse::Problem> problems;
    std::vector<std::function<void()>> runs;
    for (const graph::Csr& share : shares) {
      if (share.edges() == 0) continue;
      sparse::Problem& problem = problems.emplace_back(share, 1);
      const auto way = std::ranges::find(sparse::ways(), std::string_view(kCorners[k].row),
                                         [](const sparse::Way& w) { return std::string_view(w.name); });
      runs.push_back(way != sparse::ways().end() ? problem.run(*way) : problem.run(kCorners[k].row));
      if (!runs.back()) break;
    }
    if (runs.empty() || !runs.back()) continue;
    double slowest = 0;
    for (const auto& times : sparse::race(runs, static_cast<int>(o.rounds), o.quick ? 1e-5 : 2e-4))
      slowest = std::max(slowest, sparse::median(times));
    row.gflops[k] = 2e-9 * static_cast<double>(csr.edges()) / (slowest * static_cast<double>(o.shares));
  }
  return row;
}

std::string csv_of(const std::vector<BalanceRow>& rows, const Spmm2x2Args& o) {
  std::string text = "graph,nodes,edges,spread,shares";
  for (const Corner& c : kCorners) text += fmt::format(",{}_gflops,{}_of_best", c.name, c.name);
  text += '\n';
  for (const BalanceRow& r : rows) {
    text += fmt::format("{},{},{},{:.3g},{}", r.graph, r.stats.rows, r.stats.edges, r.stats.spread, o.shares);
    for (const double g : r.gflops) text += fmt::format(",{:.4g},{:.3f}", g, g / r.best());
    text += '\n';
  }
  return text;
}

std::string svg_of(const std::vector<BalanceRow>& rows) {
  report::Curve curve{.title = "balance and reduction, one channel",
                      .x_label = "deviation of degrees over mean",
                      .y_label = "share of the best corner"};
  std::vector<BalanceRow> sorted = rows;
  std::ranges::sort(sorted, {}, [](const BalanceRow& r) { return r.stats.spread; });
  for (size_t k = 0; k < kCorners.size(); ++k) {
    report::Series series{.label = kCorners[k].name, .points = {}};
    for (const BalanceRow& r : sorted) series.points.emplace_back(r.stats.spread, r.gflops[k] / r.best());
    curve.series.push_back(std::move(series));
  }
  return report::svg(curve);
}

void print_rows(const std::vector<BalanceRow>& rows, const Spmm2x2Args& o) {
  std::vector<report::Column> columns = {{"graph"}, {"nodes", report::Align::right}, {"edges", report::Align::right}};
  columns.push_back({"spread", report::Align::right});
  for (const Corner& c : kCorners) columns.push_back({c.name, report::Align::right});
  report::Table table(std::move(columns));
  for (const BalanceRow& r : rows) {
    std::vector<std::string> cells = {r.graph, std::to_string(r.stats.rows), std::to_string(r.stats.edges),
                                      fmt::format("{:.2f}", r.stats.spread)};
    for (const double g : r.gflops) cells.push_back(fmt::format("{:.2f} ({:.2f})", g, g / r.best()));
    table.row(std::move(cells));
  }
  fmt::print(
      "{}\nGFLOP/s of each of {} threads of {} that wait for the slowest share (and the part of the\nbest corner's), "
      "one "
      "channel, medians of {} rounds. rb: as many rows a share, eb: as many edges; sr: a row's\nedges in order, pr: in "
      "lanes; sell: eight rows of about equal length at a time.\n",
      table.markdown(), o.shares, sys::machine().cpu_name, o.rounds);
}

int repro_spmm_2x2(const Spmm2x2Args& o) {
  check_range("--shares", o.shares, 1, 1024);
  check_range("--rounds", o.rounds, 1, 1000);
  if (!o.csv.empty()) io::check_new_file(o.csv, ".csv");
  if (!o.svg.empty()) io::check_new_file(o.svg, ".svg");
  std::vector<BalanceRow> rows;
  const auto named = balance_graphs(o.quick);
  report::Progress progress("timing", std::ssize(named));
  for (const sparse::NamedGraph& g : named) {
    progress.at(std::ssize(rows));
    rows.push_back(measure_balance(g.name, g.make(), o));
  }
  progress.wipe();
  if (!o.csv.empty()) io::write_text_file(o.csv, csv_of(rows, o));
  if (!o.svg.empty()) io::write_text_file(o.svg, svg_of(rows));
  if (!o.json) {
    print_rows(rows, o);
    return 0;
  }
  ordered_json list = ordered_json::array();
  for (const BalanceRow& r : rows) {
    ordered_json j = {
        {"graph", r.graph}, {"nodes", r.stats.rows}, {"edges", r.stats.edges}, {"spread", r.stats.spread}};
    for (size_t k = 0; k < kCorners.size(); ++k) j[kCorners[k].name] = r.gflops[k];
    list.push_back(std::move(j));
  }
  fmt::print(
      "{}\n",
      io::dumped(ordered_json{{"cpu_info", sys::machine().cpu_name}, {"shares", o.shares}, {"gflops", list}}, 1));
  return 0;
}

}  // namespace

Action setup_repro_spmm_2x2(Cli& cli) {
  auto o = std::make_shared<Spmm2x2Args>();
  cli.option("--shares", o->shares, "threads that share the work; each share is timed alone, on one thread");
  cli.option("--rounds", o->rounds, "rounds, each of which runs every share once; medians are over them");
  cli.option("--csv FILE", o->csv, "write the numbers");
  cli.option("--svg FILE", o->svg, "write a plot of the corners by spread of degrees");
  cli.flag("--quick", o->quick, "small graphs");
  cli.flag("--json", o->json, "print one JSON object");
  return [o] { return repro_spmm_2x2(*o); };
}

}  // namespace braid::apps
