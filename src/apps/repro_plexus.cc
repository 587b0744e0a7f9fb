// braid repro plexus: how full-graph training on a grid of ranks scales to 2,048 of them, in virtual time: for each
// published graph and number of ranks, the grid that the closed form takes for the fastest of those that fit, and the
// fastest with a single axis. The collectives are played message by message over the links of a cluster;
// the rest of a step is the model's (layout/graph_plan.h). No time is measured.
//   https://arxiv.org/abs/2505.04083 (Plexus: up to 2,048 GPUs of Perlmutter)
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/comm_cluster.h"
#include "apps/commands.h"
#include "apps/model_args.h"
#include "io/atomic_file.h"
#include "layout/graph_plan.h"
#include "report/curve.h"
#include "report/progress.h"
#include "report/table.h"
#include "report/units.h"

namespace braid::apps {
namespace {
using layout::GraphCost;
using nlohmann::ordered_json;

struct PlexusArgs {
  std::string cluster = "perlmutter", out;
  int64_t most = 2048;
  bool json = false;
};

// A graph on so many ranks.
struct ScalingPoint {
  const layout::PublishedGraph* graph = nullptr;
  int64_t ranks = 0;
  GraphCost best{};
  double seconds = 0;               // of a step, in virtual time
  std::optional<GraphCost> line{};  // one axis alone; none: no such grid fits
  double line_seconds = 0;
};

std::string grid_text(const GraphCost& c) {
  const auto [x, y, z] = c.shape;
  return fmt::format("{},{},{}", x, y, z);
}

bool has_one_axis(const GraphCost& c) {
  const auto [x, y, z] = c.shape;
  return std::max({x, y, z}) == c.shape.ranks();
}

std::vector<ScalingPoint> scaling_points(const PlexusArgs& o) {
  const layout::Machine cluster = find_machine(o.cluster);
  std::vector<int64_t> ranks;
  for (int64_t n = 1; n <= o.most; n *= 2) ranks.push_back(n);
  const auto graphs = layout::published_graphs();
  report::Progress bar("playing", std::ssize(graphs) * std::ssize(ranks));
  std::vector<ScalingPoint> points;
  int64_t done = 0;
  for (const layout::PublishedGraph& graph : graphs) {
    for (const int64_t n : ranks) {
      bar.at(++done);
      layout::GraphTask task = graph.task;
      task.ranks = n;
      const layout::Machine machine = layout::with_ranks(cluster, n);
      const std::vector<GraphCost> plans = layout::graph_plans(task, machine);
      if (!plans.front().fits) continue;
      layout::Replay replay(machine);
      ScalingPoint& p = points.emplace_back(ScalingPoint{.graph = &graph, .ranks = n, .best = plans.front()});
      p.seconds = layout::graph_step_replayed(task, p.best, replay);
      const auto line = std::find_if(plans.begin(), plans.end(), has_one_axis);
      if (line == plans.end() || !line->fits) continue;
      p.line = *line;
      p.line_seconds = layout::graph_step_replayed(task, *line, replay);
    }
  }
  return points;
}

const ScalingPoint& first_of(const std::vector<ScalingPoint>& points, const ScalingPoint& of) {
  return *std::find_if(points.begin(), points.end(), [&](const ScalingPoint& p) { return p.graph == of.graph; });
}

// Time of the fewest ranks that fit over that of these, and the share of what more ranks could do.
double speedup_of(const std::vector<ScalingPoint>& points, const ScalingPoint& p) {
  return first_of(points, p).seconds / p.seconds;
}
double efficiency_of(const std::vector<ScalingPoint>& points, const ScalingPoint& p) {
  return speedup_of(points, p) * static_cast<double>(first_of(points, p).ranks) / static_cast<double>(p.ranks);
}

std::string csv_of(const std::vector<ScalingPoint>& points) {
  std::string text = "graph,ranks,grid,step_seconds,sent_seconds,efficiency,one_axis_grid,one_axis_step_seconds\n";
  for (const ScalingPoint& p : points) {
    text += fmt::format("{},{},\"{}\",{:.6g},{:.6g},{:.4f},", p.graph->name, p.ranks, grid_text(p.best), p.seconds,
                        p.seconds - (p.best.step - p.best.sent), efficiency_of(points, p));
    text += p.line ? fmt::format("\"{}\",{:.6g}\n", grid_text(*p.line), p.line_seconds) : ",\n";
  }
  return text;
}

std::string svg_of(const PlexusArgs& o, const std::vector<ScalingPoint>& points) {
  report::Curve curve{.title = fmt::format("a step of gcn, 3 layers, hidden 128, FP32, on {}: virtual time", o.cluster),
                      .x_label = "ranks",
                      .y_label = "seconds",
                      .log_y = true,
                      .log_x = true};
  for (const layout::PublishedGraph& graph : layout::published_graphs()) {
    report::Series best{.label = graph.name, .points = {}},
        line{.label = fmt::format("{}, one axis", graph.name), .points = {}};
    for (const ScalingPoint& p : points) {
      if (p.graph != &graph) continue;
      best.points.emplace_back(p.ranks, p.seconds);
      if (p.line) line.points.emplace_back(p.ranks, p.line_seconds);
    }
    if (!best.points.empty()) curve.series.push_back(std::move(best));
    if (!line.points.empty()) curve.series.push_back(std::move(line));
  }
  return report::svg(curve);
}

void print_points(const PlexusArgs& o, const std::vector<ScalingPoint>& points) {
  using report::Align;
  report::Table table({{"graph"},
                       {"ranks", Align::right},
                       {"grid"},
                       {"step", Align::right},
                       {"of it sent", Align::right},
                       {"efficiency", Align::right},
                       {"one axis"},
                       {"its step", Align::right},
                       {"ratio", Align::right}});
  for (const ScalingPoint& p : points) {
    const double sent = p.seconds - (p.best.step - p.best.sent);
    table.row({p.graph->name, std::to_string(p.ranks), grid_text(p.best), report::duration(p.seconds),
               fmt::format("{:.0f}%", 100 * sent / p.seconds), fmt::format("{:.0f}%", 100 * efficiency_of(points, p)),
               p.line ? grid_text(*p.line) : "-", p.line ? report::duration(p.line_seconds) : "-",
               p.line ? fmt::format("{:.2f} x", p.line_seconds / p.seconds) : "-"});
  }
  fmt::print("{}\n", table.plain());
  fmt::print(
      "gcn of 3 layers, hidden 128, FP32, on {}. Steps in virtual time: collectives played over the cluster's links, "
      "the "
      "rest by roofs; nothing is measured, and nothing overlaps. Efficiency: against the fewest ranks that fit.\n",
      o.cluster);
  for (const layout::PublishedGraph& g : layout::published_graphs()) fmt::print("{}: {}\n", g.name, g.source);
}

int repro_plexus(const PlexusArgs& o) {
  check_range("--ranks", o.most, 1, 4096);
  if (!o.out.empty()) io::check_new_files(o.out, {".csv", ".svg"}, true);
  const std::vector<ScalingPoint> points = scaling_points(o);
  if (!o.out.empty()) {
    io::write_text_file(o.out + ".csv", csv_of(points));
    io::write_text_file(o.out + ".svg", svg_of(o, points));
  }
  if (!o.json) {
    print_points(o, points);
    return 0;
  }
  ordered_json rows = ordered_json::array();
  for (const ScalingPoint& p : points) {
    ordered_json row = {{"graph", p.graph->name},
                        {"ranks", p.ranks},
                        {"grid", grid_text(p.best)},
                        {"virtual_step_seconds", p.seconds},
                        {"modelled_step_seconds", p.best.step},
                        {"efficiency", efficiency_of(points, p)}};
    if (p.line) row.update({{"one_axis_grid", grid_text(*p.line)}, {"one_axis_virtual_step_seconds", p.line_seconds}});
    rows.push_back(std::move(row));
  }
  fmt::print("{}\n", ordered_json({{"cluster", o.cluster}, {"rows", std::move(rows)}}).dump());
  return 0;
}

}  // namespace

Action setup_repro_plexus(Cli& cli) {
  auto o = std::make_shared<PlexusArgs>();
  cli.option("--cluster NAME", o->cluster, "a preset, or a TOML file with links and [device]");
  cli.option("--ranks", o->most, "most ranks, in powers of two");
  cli.option("-o,--out PREFIX", o->out, "also write PREFIX.csv and a plot, PREFIX.svg");
  cli.flag("--json", o->json, "print one JSON object");
  return [o] { return repro_plexus(*o); };
}

}  // namespace braid::apps
