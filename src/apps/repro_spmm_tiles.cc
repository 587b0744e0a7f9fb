#include "apps/repro_spmm_tiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/version.h"
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

namespace braid::apps {
namespace {
using nlohmann::ordered_json;

constexpr int64_t kMultiple = 32;  // channels

struct TileCell {
  std::string graph;
  sparse::Condensed tiles;
  int64_t width = 0;
  bool values = false;                       // of edges, else ones
  const char* way = nullptr;                 // the fastest of those row by row
  double rows_gflops = 0, tiles_gflops = 0;  // the latter 0 where this CPU has no tiles
  double faster = 0;                         // tiles over rows, median of the rounds
  double making = 0;                         // how many products by tiles making them takes
};

std::vector<sparse::NamedGraph> tile_graphs(bool quick) {
  if (quick)
    return {{"rmat10", [] { return graph::rmat_graph(10, 8, 1); }},
            {"band10", [] { return graph::band_graph(1 << 10, 8); }},
            {"blocks10_ordered", [] { return sparse::communities(1 << 10, true); }}};
  return {{"rmat16", [] { return graph::rmat_graph(16, 16, 1); }},
          {"er16", [] { return graph::uniform_graph(1 << 16, (int64_t{1} << 16) * 27 / 2, 1); }},
          {"grid512", [] { return graph::grid_graph(512, 512); }},
          {"blocks16", [] { return sparse::communities(1 << 16, false); }},
          {"blocks16_ordered", [] { return sparse::communities(1 << 16, true); }},
          {"blocks12_ordered", [] { return sparse::communities(1 << 12, true); }},
          {"stencil40", [] { return graph::stencil_graph(40); }},
          {"band16", [] { return graph::band_graph(1 << 16, 8); }}};
}

TileCell measure_cell(const std::string& name, const graph::Csr& csr, const sparse::Condensed& tiles, int64_t width,
                      bool values, const SpmmOnTiles& o) {
  sparse::Problem problem(csr, width, {.features = DType::bf16, .values = values});
  std::vector<std::function<void()>> runs;
  std::vector<const char*> names;
  for (const sparse::Way& way : sparse::ways()) {
    if (!way.packed) runs.push_back(problem.run(way)), names.push_back(way.name);
  }
  auto on_tiles = problem.run("tiles");
  const bool able = on_tiles != nullptr;
  if (able) runs.push_back(std::move(on_tiles));
  const auto seconds = sparse::race(runs, static_cast<int>(o.rounds), o.quick ? 1e-5 : 2e-3);
  size_t best = 0;
  for (size_t k = 1; k < names.size(); ++k) {
    if (sparse::median(seconds[k]) < sparse::median(seconds[best])) best = k;
  }
  const double work = 1e-9 * problem.flops();
  TileCell cell{.graph = name, .tiles = tiles, .width = width, .values = values, .way = names[best]};
  cell.rows_gflops = work / sparse::median(seconds[best]);
  if (!able) return cell;
  cell.tiles_gflops = work / sparse::median(seconds.back());
  cell.faster = sparse::median_ratio(seconds[best], seconds.back());
  cell.making = problem.tile_seconds() * cell.tiles_gflops / work;
  return cell;
}

std::string csv_of(const std::vector<TileCell>& cells) {
  std::string text =
      "graph,tile_density,tile_reuse,width,values,way,rows_gflops,tiles_gflops,times_as_fast,making_products\n";
  for (const TileCell& c : cells) {
    text += fmt::format("{},{:.4f},{:.3f},{},{},{},{:.4g}", c.graph, c.tiles.density, c.tiles.reuse, c.width,
                        c.values ? 1 : 0, c.way, c.rows_gflops);
    text += c.tiles_gflops > 0 ? fmt::format(",{:.4g},{:.3f},{:.1f}\n", c.tiles_gflops, c.faster, c.making) : ",,,\n";
  }
  return text;
}

std::string svg_of(const std::vector<TileCell>& cells) {
  report::Curve curve{.title = "BF16 features, one thread: dense tiles over row by row",
                      .x_label = "edges that share a row of features",
                      .y_label = "times as fast",
                      .log_x = true};
  std::map<std::pair<bool, int64_t>, std::vector<std::pair<double, double>>> lines;
  for (const TileCell& c : cells) lines[{c.values, c.width}].emplace_back(c.tiles.reuse, c.faster);
  for (auto& [key, points] : lines) {
    std::sort(points.begin(), points.end());
    curve.series.push_back(
        {.label = fmt::format("{} channels, {}", key.second, key.first ? "values" : "ones"), .points = points});
  }
  return report::svg(curve);
}

void print_cells(const std::vector<TileCell>& cells) {
  using report::Align;
  report::Table table({{"graph"},
                       {"full", Align::right},
                       {"share a row", Align::right},
                       {"width", Align::right},
                       {"edges"},
                       {"fastest by rows"},
                       {"GFLOP/s", Align::right},
                       {"tiles", Align::right},
                       {"times as fast", Align::right},
                       {"making", Align::right}});
  for (const TileCell& c : cells) {
    const bool able = c.tiles_gflops > 0;
    table.row({c.graph, fmt::format("{:.1f}%", 100 * c.tiles.density), fmt::format("{:.2f}", c.tiles.reuse),
               std::to_string(c.width), c.values ? "values" : "ones", c.way, fmt::format("{:.1f}", c.rows_gflops),
               able ? fmt::format("{:.1f}", c.tiles_gflops) : "-", able ? fmt::format("{:.2f}", c.faster) : "-",
               able ? fmt::format("{:.0f}", c.making) : "-"});
  }
  fmt::print(
      "{}\nBF16 features and results, one thread of {}, medians of interleaved rounds. Full: dense tiles of 16 x 8;\n"
      "share a row: edges per row of features that a tile reads; making: products by tiles that making them takes.\n",
      table.markdown(), sys::machine().cpu_name);
  if (cells[0].tiles_gflops == 0) fmt::print("This CPU has no BF16 tiles (AMX).\n");
}

ordered_json json_of(const SpmmOnTiles& o, const std::vector<TileCell>& cells) {
  ordered_json rows = ordered_json::array();
  for (const TileCell& c : cells) {
    ordered_json row = {{"graph", c.graph},
                        {"tile_density", c.tiles.density},
                        {"tile_reuse", c.tiles.reuse},
                        {"width", c.width},
                        {"values", c.values},
                        {"way", c.way},
                        {"gflops", c.rows_gflops}};
    if (c.tiles_gflops > 0) {
      row["tiles_gflops"] = c.tiles_gflops;
      row["times_as_fast"] = c.faster;
      row["making_products"] = c.making;
    }
    rows.push_back(std::move(row));
  }
  return {{"what", "measured by braid repro spmm --dtype bf16"},
          {"braid", fmt::format("{} (commit {})", build().version, build().commit)},
          {"cpu", sys::machine().cpu_name},
          {"rounds", o.rounds},
          {"cells", rows}};
}

}  // namespace

int repro_spmm_on_tiles(const SpmmOnTiles& o) {
  std::vector<int64_t> widths;
  std::copy_if(o.widths.begin(), o.widths.end(), std::back_inserter(widths),
               [](int64_t width) { return width % kMultiple == 0; });
  if (widths.empty()) fail("--widths", {.what = "none divides by 32, as tiles of BF16 features need"});
  std::vector<TileCell> cells;
  const auto named = tile_graphs(o.quick);
  report::Progress progress("timing", std::ssize(named) * std::ssize(widths));
  for (const sparse::NamedGraph& g : named) {
    const graph::Csr csr = g.make();
    const sparse::Condensed tiles = sparse::condensed(csr);
    progress.wipe();
    if (!o.json) fmt::print("{}: {}; {}\n", g.name, graph::describe(graph::stats_of(csr)), sparse::describe(tiles));
    for (const int64_t width : widths) {
      progress.at(std::ssize(cells) / 2);
      for (const bool values : {false, true}) cells.push_back(measure_cell(g.name, csr, tiles, width, values, o));
    }
  }
  progress.wipe();
  if (!o.csv.empty()) io::write_text_file(o.csv, csv_of(cells));
  if (!o.svg.empty()) io::write_text_file(o.svg, svg_of(cells));
  if (o.json) {
    fmt::print("{}\n", json_of(o, cells).dump(1));
  } else {
    print_cells(cells);
  }
  return 0;
}

}  // namespace braid::apps
