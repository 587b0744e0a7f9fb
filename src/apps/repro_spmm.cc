// braid repro spmm: how fast each way to run the sparse product of graph networks is on this machine, by graph and
// width, beside the least bytes that it must move; and with --tune the decision tree that chooses among them, with its
// regret on graphs that it was not grown from.
//   GE-SpMM (arXiv 2007.03179), its successor on balance and reduction (2106.16064), DA-SpMM (2202.08556)
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/commands.h"
#include "apps/model_args.h"
#include "apps/repro_spmm_gpu.h"
#include "apps/repro_spmm_tiles.h"
#include "apps/repro_spmm_tree.h"
#include "graph/generate.h"
#include "io/atomic_file.h"
#include "report/curve.h"
#include "report/progress.h"
#include "report/table.h"
#include "sparse/condense.h"
#include "sparse/problem.h"
#include "sparse/race.h"
#include "sparse/samples.h"
#include "sys/error.h"
#include "sys/machine.h"
#include "sys/roofs.h"

namespace braid::apps {
namespace {
using nlohmann::ordered_json;

struct ReproSpmmArgs {
  std::vector<int64_t> widths = {1, 2, 4, 8, 16, 32, 64, 128};
  std::string csv, svg, device = "cpu", dtype = "f32", tables;
  int64_t rounds = 7;
  bool quick = false, tune = false, json = false;
};

// The ways, and the parallel reductions, which sum in another order.
constexpr size_t kColumns = sparse::kWays + 2;
const char* column_name(size_t column) {
  constexpr const char* kReductions[] = {"pr", "eb_pr"};
  return column < sparse::kWays ? sparse::ways()[column].name : kReductions[column - sparse::kWays];
}

constexpr size_t kSell = 4;
struct SpmmCell {
  std::string graph;
  int64_t width = 0;
  std::vector<double> gflops;              // by column; 0 where it is not possible
  double pack = 0;                         // how many products a pack takes; 0: none
  double share_least = 0, share_most = 0;  // of the time that the least and the most bytes take at the rate of reading
  size_t best() const { return static_cast<size_t>(std::max_element(gflops.begin(), gflops.end()) - gflops.begin()); }
};

std::vector<sparse::NamedGraph> spmm_graphs(bool quick) {
  if (quick)
    return {{"rmat10", [] { return graph::rmat_graph(10, 8, 1); }},
            {"grid32", [] { return graph::grid_graph(32, 32); }}};
  return {{"rmat16", [] { return graph::rmat_graph(16, 16, 1); }},
          {"er16", [] { return graph::uniform_graph(1 << 16, (int64_t{1} << 16) * 27 / 2, 1); }},
          {"grid512", [] { return graph::grid_graph(512, 512); }},
          {"rmat18", [] { return graph::rmat_graph(18, 4, 1); }}};
}

SpmmCell measure_cell(const std::string& name, const graph::Csr& csr, int64_t width, const ReproSpmmArgs& o) {
  sparse::Problem problem(csr, width);
  SpmmCell cell{.graph = name, .width = width, .gflops = std::vector<double>(kColumns, 0)};
  std::vector<std::function<void()>> runs;
  std::vector<size_t> which;
  for (size_t way = 0; way < kColumns; ++way) {
    auto run = way < sparse::kWays ? problem.run(sparse::ways()[way]) : problem.run(column_name(way));
    if (run) runs.push_back(std::move(run)), which.push_back(way);
  }
  const auto seconds = sparse::race(runs, static_cast<int>(o.rounds), o.quick ? 1e-5 : 1e-3);
  for (size_t k = 0; k < runs.size(); ++k) cell.gflops[which[k]] = 1e-9 * problem.flops() / sparse::median(seconds[k]);
  if (cell.gflops[kSell] > 0) cell.pack = problem.pack_seconds() * 1e9 * cell.gflops[kSell] / problem.flops();
  const double taken = 1e9 * problem.flops() / (1e9 * cell.gflops[cell.best()]) * sys::roofs().read_gbs_1;
  cell.share_least = problem.bytes_least() / taken;
  cell.share_most = problem.bytes_most() / taken;
  return cell;
}

std::string csv_of(const std::vector<SpmmCell>& cells) {
  std::string text = "graph,width";
  for (size_t way = 0; way < kColumns; ++way) text += fmt::format(",{}_gflops", column_name(way));
  text += ",pack_products,share_of_least_bytes,share_of_most_bytes\n";
  for (const SpmmCell& c : cells) {
    text += fmt::format("{},{}", c.graph, c.width);
    for (const double g : c.gflops) text += g > 0 ? fmt::format(",{:.4g}", g) : ",";
    text += fmt::format(",{:.1f},{:.3f},{:.3f}\n", c.pack, c.share_least, c.share_most);
  }
  return text;
}

// Of the first graph.
std::string svg_of(const std::vector<SpmmCell>& cells) {
  report::Curve curve{.title = "spmm on " + cells[0].graph + ", one thread",
                      .x_label = "channels",
                      .y_label = "GFLOP/s",
                      .log_x = true};
  for (size_t way = 0; way < kColumns; ++way) {
    report::Series series{.label = column_name(way), .points = {}};
    for (const SpmmCell& c : cells) {
      if (c.graph == cells[0].graph && c.gflops[way] > 0)
        series.points.emplace_back(static_cast<double>(c.width), c.gflops[way]);
    }
    curve.series.push_back(std::move(series));
  }
  return report::svg(curve);
}

void print_cells(const std::vector<SpmmCell>& cells) {
  std::vector<report::Column> columns = {{"graph"}, {"width", report::Align::right}};
  for (size_t way = 0; way < kColumns; ++way) columns.push_back({column_name(way), report::Align::right});
  columns.push_back({"pack", report::Align::right});
  columns.push_back({"of the bounds", report::Align::right});
  report::Table table(std::move(columns));
  for (const SpmmCell& c : cells) {
    std::vector<std::string> row = {c.graph, std::to_string(c.width)};
    for (size_t way = 0; way < c.gflops.size(); ++way)
      row.push_back(c.gflops[way] > 0 ? fmt::format("{:.2f}{}", c.gflops[way], way == c.best() ? " *" : "") : "-");
    row.push_back(c.pack > 0 ? fmt::format("{:.0f}", c.pack) : "-");
    row.push_back(fmt::format("{:.0f}% {:.0f}%", 100 * c.share_least, 100 * c.share_most));
    table.row(std::move(row));
  }
  fmt::print("{}\n", table.markdown());
  fmt::print(
      "GFLOP/s of one thread of {}, medians of interleaved rounds, * the best; pack: products that making one\n"
      "takes. Bounds: the bytes with every source read once, and once per edge, at the {:.1f} GB/s that a thread reads "
      "from memory; caches exceed the latter.\n"
      "sr: a row at a time, its edges in order; ahead: features of coming edges are prefetched; past: results are\n"
      "written past the caches; sell: rows of about equal length side by side, from a packed copy of the graph, up to\n"
      "8 channels. With one channel also sums in another order, which only a comparison takes: pr, the edges of a row\n"
      "in lanes; eb_pr, as many edges for each lane, whatever their rows (docs/graphs.md).\n",
      sys::machine().cpu_name, sys::roofs().read_gbs_1);
}

int repro_table(const ReproSpmmArgs& o) {
  std::vector<SpmmCell> cells;
  ordered_json graphs = ordered_json::array();
  const auto named = spmm_graphs(o.quick);
  report::Progress progress("timing", std::ssize(named));
  for (const sparse::NamedGraph& g : named) {
    progress.at(std::ssize(graphs));
    const graph::Csr csr = g.make();
    const sparse::Condensed tiles = sparse::condensed(csr);
    graphs.push_back({{"graph", g.name}, {"tile_density", tiles.density}, {"tile_reuse", tiles.reuse}});
    for (const int64_t width : o.widths) cells.push_back(measure_cell(g.name, csr, width, o));
    progress.wipe();
    if (!o.json) fmt::print("{}: {}; {}\n", g.name, graph::describe(graph::stats_of(csr)), sparse::describe(tiles));
  }
  if (!o.csv.empty()) io::write_text_file(o.csv, csv_of(cells));
  if (!o.svg.empty()) io::write_text_file(o.svg, svg_of(cells));
  if (!o.json) {
    print_cells(cells);
    return 0;
  }
  ordered_json rows = ordered_json::array();
  for (const SpmmCell& c : cells) {
    ordered_json row = {{"graph", c.graph}, {"width", c.width}};
    for (size_t way = 0; way < c.gflops.size(); ++way) {
      if (c.gflops[way] > 0) row[column_name(way)] = c.gflops[way];
    }
    if (c.pack > 0) row["pack_products"] = c.pack;
    row["share_of_least_bytes"] = c.share_least;
    row["share_of_most_bytes"] = c.share_most;
    rows.push_back(std::move(row));
  }
  fmt::print("{}\n", ordered_json{{"cpu_info", sys::machine().cpu_name}, {"graphs", graphs}, {"gflops", rows}}.dump(1));
  return 0;
}

int repro_spmm(const ReproSpmmArgs& o) {
  for (const int64_t width : o.widths) check_range("--widths", width, 1, 1024);
  if (o.widths.empty()) fail("--widths", {.what = "is empty", .expected = "widths, as 1,16,64"});
  check_range("--rounds", o.rounds, 1, 1000);
  if (!o.csv.empty()) io::check_new_file(o.csv, ".csv");
  if (!o.svg.empty()) io::check_new_file(o.svg, ".svg");
  if (o.tune && !o.svg.empty()) fail("--svg", {.what = "does not go with --tune", .hint = "--csv"});
  if (o.device != "cpu" && o.device != "cuda")
    fail("--device", {.what = "no such device", .got = printable(o.device), .expected = "cpu or cuda"});
  if (o.device == "cuda" && o.tune) fail("--tune", {.what = "needs --device cpu", .got = o.device});
  if (o.dtype != "f32" && o.dtype != "bf16")
    fail("--dtype", {.what = "no such features", .got = printable(o.dtype), .expected = "f32 or bf16"});
  if (o.dtype != "f32" && o.tune) fail("--tune", {.what = "needs --dtype f32", .got = o.dtype});
  if (!o.tables.empty()) {
    if (!o.tune) fail("--tables", {.what = "goes with --tune", .got = printable(o.tables)});
    const ReproSpmmArgs plain;
    refuse_unread("--tables", {{"--csv", !o.csv.empty()},
                               {"--widths", o.widths != plain.widths},
                               {"--rounds", o.rounds != plain.rounds},
                               {"--quick", o.quick}});
    return repro_spmm_tables(o.tables, o.json);
  }
  const DType dtype = o.dtype == "bf16" ? DType::bf16 : DType::f32;
  if (o.device == "cuda") return repro_spmm_on_gpu({o.widths, o.csv, o.svg, o.rounds, dtype, o.quick, o.json});
  if (dtype == DType::bf16) return repro_spmm_on_tiles({o.widths, o.csv, o.svg, o.rounds, o.quick, o.json});
  return o.tune ? repro_spmm_tree({o.widths, o.csv, o.rounds, o.quick, o.json}) : repro_table(o);
}

}  // namespace

Action setup_repro_spmm(Cli& cli) {
  auto o = std::make_shared<ReproSpmmArgs>();
  cli.option("--widths", o->widths, "channels, a list");
  cli.option("--rounds", o->rounds, "rounds, each of which runs every way once; medians are over them");
  cli.option("--device", o->device, "cpu, one thread; or cuda, its rows against cuSPARSE");
  cli.option("--dtype", o->dtype, "of the features: f32 or bf16; on a CPU bf16 is row by row against dense tiles");
  cli.option("--csv FILE", o->csv, "write the numbers; with --tune the samples");
  cli.option("--svg FILE", o->svg, "write a plot of the first graph; of tiles, of all graphs");
  cli.flag("--tune", o->tune, "grow the tree that chooses, and print its regret on graphs left out");
  cli.option("--tables FOLDER", o->tables, "with --tune: grow the tree from the tables of DA-SpMM instead");
  cli.flag("--quick", o->quick, "small graphs");
  cli.flag("--json", o->json, "print one JSON object");
  return [o] { return repro_spmm(*o); };
}

}  // namespace braid::apps
