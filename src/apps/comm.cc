// braid comm bench: collectives by algorithm and size, in virtual time on a described cluster or measured over ranks of
// this machine. Bytes are exact either way.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/comm_cluster.h"
#include "apps/comm_times.h"
#include "apps/commands.h"
#include "apps/model_args.h"
#include "comm/selector.h"
#include "io/atomic_file.h"
#include "report/curve.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/error.h"

namespace braid::apps {
namespace {
using comm::Selector;
using nlohmann::ordered_json;

struct CommBenchArgs {
  CommArgs shared;
  std::string op = "allreduce", algorithms = "all", sizes = "16K:64M", out, times;
  int64_t nodes = 0;
  bool clusters = false, json = false;
  const Cli* cli = nullptr;

  comm::Request request() const { return {.op = op_named("--op", op), .type = *dtype_of(shared.dtype)}; }
};

// What a call of so many bytes takes that names no algorithm, beside others that are in flight.
std::string chosen_for(const CommBenchArgs& o, const comm::Cluster& c, const Selector& selector, int64_t bytes) {
  comm::Request request = o.request();
  request.count = bytes / size_of(request.type);
  comm::Problem problem = o.shared.problem_of(request, c);
  problem.alone = false;
  return selector.choose(problem).name;
}

std::string json_of(const CommBenchArgs& o, const comm::Cluster& c, const Selector& selector,
                    const std::vector<CommTime>& cells) {
  const bool sim = o.shared.simulates();
  ordered_json rows = ordered_json::array();
  for (const CommTime& cell : cells) {
    const auto count = [&](int64_t n) { return cell.counted ? ordered_json(n) : ordered_json(); };
    rows.push_back({{"algorithm", cell.algorithm},
                    {"bytes", cell.bytes},
                    {sim ? "modelled_us" : "measured_us", cell.us},
                    {"node_bytes", count(cell.on_node)},
                    {"network_bytes", count(cell.on_network)},
                    {"rack_bytes", count(cell.on_racks)},
                    {"messages", count(cell.messages)},
                    {"chosen", chosen_for(o, c, selector, cell.bytes)}});
  }
  ordered_json object = {{"op", o.op},       {"dtype", o.shared.dtype}, {"transport", o.shared.transport},
                         {"nodes", c.nodes}, {"gpus", c.gpus},          {"rows", rows}};
  if (sim) object["cluster"] = c.name, object["source"] = c.source;
  return object.dump() + "\n";
}

std::string csv_of(const CommBenchArgs& o, const std::vector<CommTime>& cells) {
  std::string text = fmt::format("bytes,algorithm,{}_us,node_bytes,network_bytes,rack_bytes,messages\n",
                                 o.shared.simulates() ? "modelled" : "measured");
  for (const CommTime& c : cells) {
    text += fmt::format("{},{},{:.3f}", c.bytes, c.algorithm, c.us);
    for (const int64_t n : {c.on_node, c.on_network, c.on_racks, c.messages})
      text += c.counted ? fmt::format(",{}", n) : ",";
    text += '\n';
  }
  return text;
}

std::string title_of(const CommBenchArgs& o, const comm::Cluster& c) {
  return fmt::format(
      "{} {} over {} of {}, {}", o.op, o.shared.dtype, report::counted(c.nodes, "node"),
      report::counted(c.gpus, "rank"),
      o.shared.simulates() ? fmt::format("modelled ({})", c.name) : fmt::format("measured ({})", o.shared.transport));
}

std::string svg_of(const CommBenchArgs& o, const comm::Cluster& c, const std::vector<std::string>& algorithms,
                   const std::vector<CommTime>& cells) {
  report::Curve curve{.title = title_of(o, c), .x_label = "bytes", .y_label = "us", .log_y = true, .log_x = true};
  for (const std::string& name : algorithms) {
    report::Series& series = curve.series.emplace_back();
    series.label = name;
    for (const CommTime& cell : cells) {
      if (cell.algorithm == name) series.points.emplace_back(cell.bytes, cell.us);
    }
  }
  return report::svg(curve);
}

// A row a size: the time of each algorithm, and what the choice of a call that names none loses to the best of them.
std::string table_of(const CommBenchArgs& o, const comm::Cluster& c, const Selector& selector,
                     const std::vector<std::string>& algorithms, const std::vector<CommTime>& cells) {
  std::vector<report::Column> columns = {{"size", report::Align::right}};
  for (const std::string& name : algorithms) columns.push_back({name + " us", report::Align::right});
  columns.push_back({"best"});
  columns.push_back({"its network bytes", report::Align::right});
  columns.push_back({"chosen"});
  columns.push_back({"regret", report::Align::right});
  report::Table table(columns);
  for (size_t i = 0; i < cells.size(); i += algorithms.size()) {
    const auto row = std::span(cells).subspan(i, algorithms.size());
    std::vector<std::string> texts = {report::bytes(row[0].bytes)};
    for (const CommTime& cell : row) texts.push_back(fmt::format("{:.1f}", cell.us));
    const CommTime& best =
        *std::min_element(row.begin(), row.end(), [](const CommTime& a, const CommTime& b) { return a.us < b.us; });
    const std::string chosen = chosen_for(o, c, selector, best.bytes);
    const auto of_chosen =
        std::find_if(row.begin(), row.end(), [&](const CommTime& cell) { return cell.algorithm == chosen; });
    texts.insert(
        texts.end(),
        {best.algorithm, best.counted ? fmt::format("{}", best.on_network + best.on_racks) : "-", chosen,
         of_chosen == row.end() || best.us <= 0 ? "-" : fmt::format("{:.0f}%", 100 * (of_chosen->us / best.us - 1))});
    table.row(texts);
  }
  return title_of(o, c) + "\n" + table.plain();
}

int print_clusters(const CommBenchArgs& o) {
  for (const char* name : {"op", "algorithm", "nodes", "bytes", "times", "out"})
    refuse_unread("--clusters", {{("--" + std::string(name)).c_str(), typed(*o.cli, name)}});
  if (o.json) {
    ordered_json list = ordered_json::array();
    for (const comm::Cluster& c : comm::cluster_presets())
      list.push_back({{"cluster", c.name}, {"nodes", c.nodes}, {"gpus", c.gpus}, {"source", c.source}});
    fmt::print("{}\n", list.dump());
  } else {
    report::Table table({{"cluster"}, {"nodes", report::Align::right}, {"GPUs", report::Align::right}, {"source"}});
    for (const comm::Cluster& c : comm::cluster_presets())
      table.row({c.name, fmt::format("{}", c.nodes), fmt::format("{}", c.gpus), c.source});
    fmt::print("{}", table.plain());
  }
  return 0;
}

int comm_bench(const CommBenchArgs& o) {
  if (o.clusters) return print_clusters(o);
  check_range("--nodes", o.nodes, 0, 65536);
  o.shared.check();
  comm::Cluster cluster = o.shared.cluster_of(o.nodes);
  const Selector selector(o.times.empty() ? std::vector<comm::TimedCall>() : read_times_file(o.times),
                          comm::Learner::costs);
  if (!o.out.empty()) io::check_new_files(o.out, {".csv", ".svg"}, true);
  comm::Request request = o.request();
  const std::vector<std::string> algorithms = parse_algorithms(o.algorithms, o.shared.problem_of(request, cluster));
  std::vector<comm::Request> requests;
  for (const int64_t bytes : parse_sizes("--bytes", o.sizes)) {
    const int64_t element = size_of(request.type);
    if (bytes > 0 && bytes < element)
      fail("--bytes", {.what = "is less than an element of " + o.shared.dtype,
                       .got = fmt::format("{}", bytes),
                       .expected = fmt::format("0, or at least {}", element)});
    request.count = bytes / element;
    // Every rank of an all-to-all sends equally many to each.
    if (request.op == comm::Op::all_to_all) request.count -= request.count % cluster.ranks();
    if (bytes > 0 && request.count == 0)
      fail("--bytes", {.what = "has no element for every rank",
                       .got = fmt::format("{}", bytes),
                       .expected = fmt::format("0, or at least {}", element * cluster.ranks())});
    for (const std::string& name : algorithms) {
      request.algorithm = name;
      requests.push_back(request);
    }
  }
  const std::vector<CommTime> cells = time_calls(o.shared, cluster, requests, o.nodes);
  if (cells.empty()) return 0;  // the other ranks of mpirun: rank 0 reports
  if (!o.out.empty()) {
    io::write_text_file(o.out + ".csv", csv_of(o, cells));
    io::write_text_file(o.out + ".svg", svg_of(o, cluster, algorithms, cells));
  }
  fmt::print("{}", o.json ? json_of(o, cluster, selector, cells) : table_of(o, cluster, selector, algorithms, cells));
  return 0;
}

}  // namespace

Action setup_comm_bench(Cli& cli) {
  auto o = std::make_shared<CommBenchArgs>();
  o->cli = &cli;
  cli.choice("--op", o->op, {"allreduce", "allgather", "reducescatter", "alltoall", "broadcast", "reduce", "barrier"},
             "the operation");
  cli.option("--algorithm NAMES", o->algorithms, "comma-separated: ring,nvrar,...; all: every one that can do it");
  cli.option("--nodes", o->nodes, "nodes; 0: the cluster's, or 2 where ranks are measured (nccl: 1)");
  cli.option("--bytes SIZES", o->sizes, "of the whole vector: 16K:64M doubles, 1000,4K are two");
  o->shared.declare(cli);
  cli.flag("--clusters", o->clusters, "list the presets and where their numbers are from");
  cli.option("--times FILE", o->times, "choose by the times that comm tune wrote, not by size");
  cli.option("-o,--out PREFIX", o->out, "also write PREFIX.csv and a plot, PREFIX.svg");
  cli.flag("--json", o->json, "print one JSON object");
  return [o] { return comm_bench(*o); };
}

}  // namespace braid::apps
