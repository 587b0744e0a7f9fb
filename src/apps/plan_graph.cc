// braid plan graph: every grid of ranks that could train a graph network together, by a model of its time and memory
// (layout/graph_plan.h). Nothing is measured: roofs and links are those of a preset or a file.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "apps/comm_cluster.h"
#include "apps/commands.h"
#include "apps/model_args.h"
#include "apps/plan_serving.h"
#include "graph/graph_numbers.h"
#include "io/ordered_json.h"
#include "layout/graph_plan.h"
#include "report/progress.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/error.h"

namespace braid::apps {
namespace {
using layout::GraphCost;
using nlohmann::ordered_json;

struct GraphPlanArgs {
  std::string graph, cluster = "perlmutter", dtype = "f32";
  layout::GraphTask task{.ranks = 8};
  int64_t top = 10;
  bool replay = false, json = false;
  const Cli* cli = nullptr;
};

constexpr const char* kAxes[] = {"x", "y", "z"};
constexpr std::pair<const char*, double layout::GraphMemory::*> kParts[] = {
    {"edges", &layout::GraphMemory::edges},
    {"features", &layout::GraphMemory::features},
    {"weights", &layout::GraphMemory::weights},
    {"activations", &layout::GraphMemory::activations},
    {"working_set", &layout::GraphMemory::passes}};
constexpr std::pair<const char*, double GraphCost::*> kSeconds[] = {{"aggregation", &GraphCost::aggregate},
                                                                    {"products", &GraphCost::products},
                                                                    {"passes", &GraphCost::rest},
                                                                    {"communication", &GraphCost::sent}};

std::string size_text(double bytes) { return report::bytes(static_cast<int64_t>(bytes)); }

std::vector<std::string> names_of(std::span<const layout::PublishedGraph> graphs) {
  std::vector<std::string> names;
  for (const auto& g : graphs) names.emplace_back(g.name);
  return names;
}

// Of a file, of a published graph, or of the options alone.
layout::GraphTask graph_task(const GraphPlanArgs& o) {
  layout::GraphTask task = o.task;
  task.bf16 = o.dtype == "bf16";
  std::pair<const char*, int64_t layout::GraphTask::*> numbers[] = {{"nodes", &layout::GraphTask::nodes},
                                                                    {"edges", &layout::GraphTask::edges},
                                                                    {"features", &layout::GraphTask::features},
                                                                    {"classes", &layout::GraphTask::classes}};
  const auto published = layout::published_graphs();
  const auto known = std::find_if(published.begin(), published.end(), [&](const auto& g) { return g.name == o.graph; });
  layout::GraphTask of = task;
  if (o.graph.empty() && !o.cli->given("nodes"))
    fail("plan graph", {.what = "no graph",
                        .expected = "GRAPH, or --nodes, --edges, --features and --classes",
                        .hint = "braid plan graph ogbn-products"});
  if (known != published.end()) {
    of = known->task;
  } else if (!o.graph.empty()) {
    if (!std::filesystem::exists(o.graph))
      fail("plan graph", {.what = "no such file or published graph",
                          .got = printable(o.graph),
                          .expected = fmt::format("a file, or {}", fmt::join(names_of(published), ", "))});
    const graph::GraphNumbers read = graph::read_numbers(o.graph);
    of.nodes = read.nodes, of.edges = read.edges, of.features = read.features, of.classes = read.classes;
  }
  for (const auto& [name, member] : numbers) {
    if (!o.graph.empty() && !o.cli->given(name)) task.*member = of.*member;
    if (task.*member == 0 && !o.cli->given(name))
      fail(o.graph.empty() ? "plan graph" : printable(o.graph),
           {.what = fmt::format("does not say how many {} there are", name), .hint = fmt::format("--{} N", name)});
    check_range(fmt::format("--{}", name).c_str(), task.*member, 1, int64_t{1} << 40);
  }
  // A count of the graph's, beside the other of the command line. Self-loops are no edges here.
  if (task.nodes < 1 << 20 && task.edges > task.nodes * (task.nodes - 1)) {
    const bool of_nodes = !o.graph.empty() && o.cli->given("nodes") && !o.cli->given("edges");
    fail(of_nodes ? "--nodes" : "--edges", {.what = "so many nodes have fewer pairs than edges",
                                            .got = fmt::format("{} nodes and {} edges", task.nodes, task.edges),
                                            .expected = fmt::format("at most {} edges", task.nodes * (task.nodes - 1)),
                                            .hint = o.graph.empty() ? ""
                                                    : of_nodes      ? "--edges, too"
                                                                    : "--nodes, too"});
  }
  check_range("--hidden", task.hidden, 1, 1 << 24);
  check_range("--layers", task.layers, 1, 1000);
  check_range("--ranks", task.ranks, 1, 65536);
  return task;
}

ordered_json json_of(const GraphCost& c, double replayed) {
  const auto [x, y, z] = c.shape;
  ordered_json j = {{"grid", fmt::format("{},{},{}", x, y, z)}, {"fits", c.fits}, {"modelled_step_seconds", c.step}};
  if (replayed > 0) j["virtual_step_seconds"] = replayed;
  for (const auto& [name, member] : kSeconds) j["seconds"][name] = c.*member;
  for (size_t a = 0; a < layout::kGraphAxes; ++a) {
    j["bytes_sent"][kAxes[a]] = c.bytes[a];
    j["axis_seconds"][kAxes[a]] = c.seconds[a];
  }
  for (const auto& [name, member] : kParts) j["memory"][name] = c.memory.*member;
  j["memory_bytes"] = c.memory.sum();
  return j;
}

void print(const GraphPlanArgs& o, const layout::GraphTask& task, const layout::Machine& machine,
           std::span<const GraphCost> top, std::span<const double> replayed, size_t grids) {
  fmt::print("gcn of {}, hidden {}, over {} nodes and {} edges, {} features and {} classes, {}\n",
             report::counted(task.layers, "layer"), task.hidden, report::count(static_cast<double>(task.nodes)),
             report::count(static_cast<double>(task.edges)), task.features, task.classes, o.dtype);
  fmt::print("on {} of {} ({}): modelled, not measured\n{}{} grids\n\n", report::counted(machine.links.nodes, "node"),
             report::counted(machine.links.gpus, "GPU"), machine.name, machine_text(machine), grids);
  using report::Align;
  std::vector<report::Column> columns = {{"x,y,z"}, {"step", Align::right}};
  if (o.replay) columns.push_back({"virtual time", Align::right});
  for (const char* name : {"aggregation", "products", "passes", "sent", "x sends", "y sends", "z sends", "memory"})
    columns.push_back({name, Align::right});
  columns.push_back({"fits"});
  report::Table table(columns);
  for (size_t i = 0; i < top.size(); ++i) {
    const GraphCost& c = top[i];
    const auto [x, y, z] = c.shape;
    std::vector<std::string> row = {fmt::format("{},{},{}", x, y, z), report::duration(c.step)};
    if (o.replay) row.push_back(report::duration(replayed[i]));
    for (const auto& [name, member] : kSeconds) row.push_back(report::duration(c.*member));
    for (const double bytes : c.bytes) row.push_back(size_text(bytes));
    row.push_back(size_text(c.memory.sum()));
    row.emplace_back(c.fits ? "yes" : "no");
    table.row(row);
  }
  fmt::print("{}", table.plain());
}

int plan_graph(const GraphPlanArgs& o) {
  check_range("--top", o.top, 1, 10000);
  const layout::GraphTask task = graph_task(o);
  const layout::Machine machine = layout::with_ranks(find_machine(o.cluster), task.ranks);
  const std::vector<GraphCost> plans = layout::graph_plans(task, machine);
  const auto top = std::span(plans).first(std::min(plans.size(), static_cast<size_t>(o.top)));
  layout::Replay replay(machine);
  std::vector<double> replayed;
  std::optional<report::Progress> progress(std::in_place, "replaying", std::ssize(top));
  for (const GraphCost& c : top) {
    progress->at(std::ssize(replayed));
    replayed.push_back(o.replay ? layout::graph_step_replayed(task, c, replay) : 0);
  }
  progress.reset();
  if (o.json) {
    ordered_json j = {{"cluster", machine.name},
                      {"roofs", machine.device.source},
                      {"links", machine.links.source},
                      {"ranks", task.ranks},
                      {"nodes", task.nodes},
                      {"edges", task.edges},
                      {"features", task.features},
                      {"classes", task.classes},
                      {"hidden", task.hidden},
                      {"layers", task.layers},
                      {"dtype", o.dtype},
                      {"grids", plans.size()},
                      {"plans", ordered_json::array()}};
    for (size_t i = 0; i < top.size(); ++i) j["plans"].push_back(json_of(top[i], replayed[i]));
    fmt::print("{}\n", io::dumped(j));
  } else {
    print(o, task, machine, top, replayed, plans.size());
  }
  if (plans.front().fits) return 0;
  fail("plan graph",
       {.what = "no grid fits",
        .got = fmt::format(
            "{} a rank at least",
            size_text(
                std::ranges::min_element(plans, {}, [](const GraphCost& c) { return c.memory.sum(); })->memory.sum())),
        .expected = size_text(machine.device.memory_bytes()),
        .hint = "more --ranks"});
}

}  // namespace

Action setup_plan_graph(Cli& cli) {
  auto o = std::make_shared<GraphPlanArgs>();
  o->cli = &cli;
  cli.positional("graph", o->graph,
                 "a .safetensors file that train reads, or reddit, ogbn-products, ogbn-papers100m; empty: a graph of "
                 "the numbers below",
                 false);
  cli.option("--nodes", o->task.nodes, "instead of the graph's");
  cli.option("--edges", o->task.edges, "of the adjacency: one in each direction, no self-loops");
  cli.option("--features", o->task.features, "channels of a node");
  cli.option("--classes", o->task.classes, "of the last layer");
  cli.option("--hidden", o->task.hidden, "channels between layers");
  cli.option("--layers", o->task.layers, "of gcn");
  cli.option("--ranks", o->task.ranks, "accelerators");
  cli.option("--cluster NAME", o->cluster, "a preset, or a TOML file with links and [device]");
  cli.choice("--dtype", o->dtype, {"f32", "bf16"}, "dtype of the operands of matrix products");
  cli.flag("--replay", o->replay, "also play the collectives in virtual time, message by message");
  cli.option("--top", o->top, "grids to print");
  cli.flag("--json", o->json, "print one JSON object");
  return [o] { return plan_graph(*o); };
}

}  // namespace braid::apps
