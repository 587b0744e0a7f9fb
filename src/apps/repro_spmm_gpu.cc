#include "apps/repro_spmm_gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/version.h"
#include "core/device/gpu.h"
#include "graph/generate.h"
#include "io/atomic_file.h"
#include "report/curve.h"
#include "report/progress.h"
#include "report/table.h"
#include "sparse/condense.h"
#include "sparse/gpu_times.h"
#include "sparse/samples.h"
#include "sys/error.h"

namespace braid::apps {
namespace {
using nlohmann::ordered_json;
using report::Align;
using sparse::GpuTime;

struct GpuSpmmCell {
  std::string graph;
  int64_t width = 0;
  double flops = 0, bytes_least = 0, bytes_most = 0;  // every source read once, and once per edge
  std::vector<GpuTime> times{};

  double gflops(const GpuTime& t) const { return t.seconds > 0 ? 1e-9 * flops / t.seconds : 0; }
  // Of the fastest that `counts`.
  template <class Counts>
  double least(const Counts& counts) const {
    double seconds = 0;
    for (const GpuTime& t : times) {
      if (t.seconds > 0 && counts(t) && (seconds == 0 || t.seconds < seconds)) seconds = t.seconds;
    }
    return seconds;
  }
  double chosen() const {
    return least([](const GpuTime& t) { return t.chosen; });
  }
  double library() const {
    return least([](const GpuTime& t) { return t.library; });
  }
};

std::vector<sparse::NamedGraph> gpu_graphs(bool quick) {
  if (quick)
    return {{"rmat10", [] { return graph::rmat_graph(10, 8, 1); }},
            {"grid32", [] { return graph::grid_graph(32, 32); }},
            {"blocks10_ordered", [] { return sparse::communities(1 << 10, true); }}};
  return {{"rmat16", [] { return graph::rmat_graph(16, 16, 1); }},
          {"er16", [] { return graph::uniform_graph(1 << 16, (int64_t{1} << 16) * 27 / 2, 1); }},
          {"grid512", [] { return graph::grid_graph(512, 512); }},
          {"rmat18", [] { return graph::rmat_graph(18, 16, 1); }},
          {"blocks16", [] { return sparse::communities(1 << 16, false); }},
          {"blocks16_ordered", [] { return sparse::communities(1 << 16, true); }}};
}

GpuSpmmCell measure_cell(const std::string& name, const graph::Csr& csr, int64_t width, const SpmmOnGpu& o) {
  sparse::Problem problem(csr, width);
  return {.graph = name,
          .width = width,
          .flops = problem.flops(),
          .bytes_least = problem.bytes_least(o.dtype),
          .bytes_most = problem.bytes_most(o.dtype),
          .times = sparse::times_on_gpu(problem, o.dtype, static_cast<int>(o.rounds))};
}

std::string csv_of(const std::vector<GpuSpmmCell>& cells) {
  std::string text = "graph,width";
  for (const GpuTime& t : cells[0].times) text += fmt::format(",{}_gflops", t.name);
  text += ",chosen,times_as_fast_as_cusparse\n";
  for (const GpuSpmmCell& c : cells) {
    text += fmt::format("{},{}", c.graph, c.width);
    for (const GpuTime& t : c.times) text += t.seconds > 0 ? fmt::format(",{:.5g}", c.gflops(t)) : ",";
    const auto chosen = std::find_if(c.times.begin(), c.times.end(), [](const GpuTime& t) { return t.chosen; });
    text += fmt::format(",{},{:.3f}\n", chosen->name, c.library() / c.chosen());
  }
  return text;
}

// Of the first graph.
std::string svg_of(const std::vector<GpuSpmmCell>& cells, const std::string& gpu, DType dtype) {
  report::Curve curve{.title = "spmm on " + cells[0].graph + ", " + gpu + ", " + name_of(dtype) + ", measured",
                      .x_label = "channels",
                      .y_label = "GFLOP/s",
                      .log_y = true,
                      .log_x = true};
  for (size_t k = 0; k < cells[0].times.size(); ++k) {
    report::Series series{.label = cells[0].times[k].name, .points = {}};
    for (const GpuSpmmCell& c : cells) {
      if (c.graph == cells[0].graph && c.times[k].seconds > 0)
        series.points.emplace_back(static_cast<double>(c.width), c.gflops(c.times[k]));
    }
    curve.series.push_back(std::move(series));
  }
  return report::svg(curve);
}

void print_cells(const std::vector<GpuSpmmCell>& cells, const std::string& gpu, DType dtype, const GpuRoofs& roofs) {
  std::vector<report::Column> columns = {{"graph"}, {"width", Align::right}};
  for (const GpuTime& t : cells[0].times) columns.push_back({t.name, Align::right});
  columns.push_back({"over cuSPARSE", Align::right});
  columns.push_back({"of the bounds", Align::right});
  report::Table table(std::move(columns));
  for (const GpuSpmmCell& c : cells) {
    std::vector<std::string> row = {c.graph, std::to_string(c.width)};
    for (const GpuTime& t : c.times)
      row.push_back(t.seconds > 0 ? fmt::format("{:.0f}{}", c.gflops(t), t.chosen ? " *" : "") : "-");
    row.push_back(fmt::format("{:.2f}", c.library() / c.chosen()));
    const double moved = 1e9 * roofs.copy_gbs * c.chosen();
    row.push_back(fmt::format("{:.0f}% {:.0f}%", 100 * c.bytes_least / moved, 100 * c.bytes_most / moved));
    table.row(std::move(row));
  }
  fmt::print(
      "{}\nGFLOP/s of {}, {} features, medians of interleaved rounds of ten recorded passes, * what suits the graph "
      "and\n"
      "the width (kernels/spmm/README.md), and how many times as fast it is as the fastest of cuSPARSE: `cusparse`\n"
      "narrows the row pointers in every pass, `_alg2` and `_alg3` have narrow ones and the library's `preprocess` "
      "made\n"
      "beforehand.\n"
      "Bounds: the bytes with every source read once, and once per edge, at {:.0f} GB/s of a copy; the cache exceeds "
      "it.\n",
      table.markdown(), gpu, name_of(dtype), roofs.copy_gbs);
}

ordered_json json_of(const SpmmOnGpu& o, const ordered_json& graphs, const std::vector<GpuSpmmCell>& cells,
                     const std::string& gpu, const GpuRoofs& roofs) {
  ordered_json rows = ordered_json::array();
  for (const GpuSpmmCell& c : cells) {
    ordered_json row = {{"graph", c.graph}, {"width", c.width}};
    for (const GpuTime& t : c.times) {
      if (t.seconds > 0) row[t.name] = c.gflops(t);
      if (t.chosen) row["chosen"] = t.name;
    }
    row["times_as_fast_as_cusparse"] = c.library() / c.chosen();
    row["bytes_least"] = c.bytes_least;
    row["bytes_most"] = c.bytes_most;
    rows.push_back(std::move(row));
  }
  return {{"what", "measured by braid repro spmm --device cuda"},
          {"braid", fmt::format("{} (commit {})", build().version, build().commit)},
          {"gpu", gpu},
          {"features", name_of(o.dtype)},
          {"rounds", o.rounds},
          {"copy_gbs", roofs.copy_gbs},
          {"graphs", graphs},
          {"gflops", rows}};
}

}  // namespace

int repro_spmm_on_gpu(const SpmmOnGpu& o) {
  const std::vector<Gpu> all = gpus();
  if (all.empty())
    fail_environment("--device", {.what = "no GPU here, or a build without CUDA", .hint = "cmake --preset cuda"});
  const std::string& gpu = all[0].name;
  const GpuRoofs roofs = measure_gpu_roofs(all[0].number);
  std::vector<GpuSpmmCell> cells;
  ordered_json graphs = ordered_json::array();
  const auto named = gpu_graphs(o.quick);
  report::Progress progress("timing", std::ssize(named) * std::ssize(o.widths));
  for (const sparse::NamedGraph& g : named) {
    const graph::Csr csr = g.make();
    const sparse::Condensed tiles = sparse::condensed(csr);
    graphs.push_back({{"graph", g.name}, {"tile_density", tiles.density}, {"tile_reuse", tiles.reuse}});
    progress.wipe();
    if (!o.json) fmt::print("{}: {}; {}\n", g.name, graph::describe(graph::stats_of(csr)), sparse::describe(tiles));
    for (const int64_t width : o.widths) {
      progress.at(std::ssize(cells));
      cells.push_back(measure_cell(g.name, csr, width, o));
    }
  }
  progress.wipe();
  if (!o.csv.empty()) io::write_text_file(o.csv, csv_of(cells));
  if (!o.svg.empty()) io::write_text_file(o.svg, svg_of(cells, gpu, o.dtype));
  if (o.json) {
    fmt::print("{}\n", json_of(o, graphs, cells, gpu, roofs).dump(1));
  } else {
    print_cells(cells, gpu, o.dtype, roofs);
  }
  return 0;
}

}  // namespace braid::apps
