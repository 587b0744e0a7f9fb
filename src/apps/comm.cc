// braid comm bench: collectives by algorithm and size, in virtual time on a described cluster or measured over ranks of
// this machine. Bytes are exact either way.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/comm_cluster.h"
#include "apps/commands.h"
#include "apps/model_args.h"
#include "comm/inproc.h"
#include "comm/mpi.h"
#include "comm/shm.h"
#include "comm/tcp.h"
#include "comm/timing.h"
#include "io/atomic_file.h"
#include "report/curve.h"
#include "report/progress.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/error.h"

namespace braid::apps {
namespace {
using nlohmann::ordered_json;

struct CommBenchArgs {
  std::string op = "allreduce", algorithms = "all", transport = "sim", cluster, sizes = "16K:64M";
  std::string dtype = "BF16", out;
  int64_t nodes = 0, gpus = 0, nics = 0, repeats = 5;
  bool clusters = false, json = false;
};

struct Cell {
  std::string algorithm;
  int64_t bytes = 0;
  double us = 0;
  int64_t on_node = 0, on_network = 0, on_racks = 0, messages = 0;
};

// Op names as MPI and NCCL users write them, too: "allreduce" is "all_reduce".
comm::Op op_named(const std::string& name) {
  for (int k = 0; k < 7; ++k) {
    const auto op = static_cast<comm::Op>(k);
    std::string joined = comm::name_of(op);
    std::erase(joined, '_');
    if (name == joined) return op;
  }
  fail("--op", {.what = "is not an operation", .got = printable(name)});  // the choices were checked
}

comm::Cluster cluster_of(const CommBenchArgs& o) {
  if (o.transport != "sim" && (!o.cluster.empty() || o.nics > 0)) {
    fail(o.cluster.empty() ? "--nics" : "--cluster",
         {.what = "is for virtual time", .got = "--transport " + o.transport, .hint = "--transport sim"});
  }
  comm::Cluster c = find_cluster(o.cluster.empty() ? "h100-ib" : o.cluster);
  if (o.nodes > 0) c.nodes = static_cast<int>(o.nodes);
  if (o.gpus > 0) {
    // As many cards a GPU as before, where that goes.
    c.nics = static_cast<int>(std::max<int64_t>(1, o.gpus * c.nics / c.gpus));
    c.gpus = static_cast<int>(o.gpus);
  }
  if (o.nics > 0) c.nics = static_cast<int>(o.nics);
  if (o.transport != "sim") {
    // Not the cluster's: 2 nodes of 2, and over MPI as many as mpirun started.
    c.gpus = static_cast<int>(o.gpus > 0 ? o.gpus : o.transport == "mpi" ? 1 : 2);
    c.nodes = static_cast<int>(o.nodes > 0 ? o.nodes : 2);
  }
  const int64_t most = o.transport == "sim" ? 65536 : 256;
  if (int64_t{c.nodes} * c.gpus > most)
    fail("--nodes", {.what = "are too many ranks",
                     .got = fmt::format("{} nodes of {}", c.nodes, c.gpus),
                     .expected = fmt::format("at most {} ranks over {}", most, o.transport)});
  return c;
}

std::vector<Cell> simulated(const comm::Cluster& cluster, const std::vector<comm::Request>& requests) {
  std::vector<Cell> cells;
  report::Progress progress("simulating", std::ssize(requests));
  for (const comm::Request& r : requests) {
    progress.at(std::ssize(cells));
    const comm::SimResult s = comm::simulate(cluster, r);
    cells.push_back({r.algorithm, r.count * size_of(r.type), s.us, s.bytes[0], s.bytes[1], s.bytes[2],
                     s.messages[0] + s.messages[1] + s.messages[2]});
  }
  return cells;
}

std::vector<Cell> measured(const CommBenchArgs& o, comm::Cluster& cluster, const std::vector<comm::Request>& requests) {
  std::vector<Cell> cells;
  const auto all = [&](comm::Group& world) {
    if (world.size() % cluster.gpus != 0)
      fail("--gpus", {.what = "does not divide the ranks", .got = fmt::format("{} of {}", cluster.gpus, world.size())});
    cluster.nodes = world.size() / cluster.gpus;
    for (const comm::Request& r : requests) {
      const comm::Measured m = comm::measure(world, r, static_cast<int>(o.repeats));
      if (world.rank() == 0)
        cells.push_back({r.algorithm, r.count * size_of(r.type), m.us, m.traffic.bytes[0], m.traffic.bytes[1], 0,
                         m.traffic.messages[0] + m.traffic.messages[1]});
    }
  };
  const comm::Options options{.per_node = cluster.gpus};
  if (o.transport == "inproc") comm::run_in_process(cluster.ranks(), options, all);
  if (o.transport == "shm") comm::run_in_processes(cluster.ranks(), options, all);
  if (o.transport == "tcp") comm::run_over_loopback(cluster.ranks(), options, all);
  if (o.transport == "mpi") comm::run_under_mpi(options, all);
  return cells;
}

std::string json_of(const CommBenchArgs& o, const comm::Cluster& c, const std::vector<Cell>& cells) {
  const bool sim = o.transport == "sim";
  ordered_json rows = ordered_json::array();
  for (const Cell& cell : cells)
    rows.push_back({{"algorithm", cell.algorithm},
                    {"bytes", cell.bytes},
                    {sim ? "modelled_us" : "measured_us", cell.us},
                    {"node_bytes", cell.on_node},
                    {"network_bytes", cell.on_network},
                    {"rack_bytes", cell.on_racks},
                    {"messages", cell.messages}});
  ordered_json object = {{"op", o.op},       {"dtype", o.dtype}, {"transport", o.transport},
                         {"nodes", c.nodes}, {"gpus", c.gpus},   {"rows", rows}};
  if (sim) object["cluster"] = c.name, object["source"] = c.source;
  return object.dump() + "\n";
}

std::string csv_of(const CommBenchArgs& o, const std::vector<Cell>& cells) {
  std::string text = fmt::format("bytes,algorithm,{}_us,node_bytes,network_bytes,rack_bytes,messages\n",
                                 o.transport == "sim" ? "modelled" : "measured");
  for (const Cell& c : cells)
    text += fmt::format("{},{},{:.3f},{},{},{},{}\n", c.bytes, c.algorithm, c.us, c.on_node, c.on_network, c.on_racks,
                        c.messages);
  return text;
}

std::string title_of(const CommBenchArgs& o, const comm::Cluster& c) {
  return fmt::format(
      "{} {} over {} of {}, {}", o.op, o.dtype, report::counted(c.nodes, "node"), report::counted(c.gpus, "rank"),
      o.transport == "sim" ? fmt::format("modelled ({})", c.name) : fmt::format("measured ({})", o.transport));
}

std::string svg_of(const CommBenchArgs& o, const comm::Cluster& c, const std::vector<std::string>& algorithms,
                   const std::vector<Cell>& cells) {
  report::Curve curve{.title = title_of(o, c), .x_label = "bytes", .y_label = "us", .log_y = true, .log_x = true};
  for (const std::string& name : algorithms) {
    report::Series& series = curve.series.emplace_back();
    series.label = name;
    for (const Cell& cell : cells) {
      if (cell.algorithm == name) series.points.emplace_back(cell.bytes, cell.us);
    }
  }
  return report::svg(curve);
}

// A row a size: the time of each algorithm, and what the choice by size loses to the best of them.
std::string table_of(const CommBenchArgs& o, const comm::Cluster& c, const std::vector<std::string>& algorithms,
                     const std::vector<Cell>& cells) {
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
    for (const Cell& cell : row) texts.push_back(fmt::format("{:.1f}", cell.us));
    const Cell& best =
        *std::min_element(row.begin(), row.end(), [](const Cell& a, const Cell& b) { return a.us < b.us; });
    const comm::Request request{
        .op = op_named(o.op), .type = *dtype_of(o.dtype), .count = best.bytes / size_of(*dtype_of(o.dtype))};
    const std::string chosen = comm::algorithm_for(comm::problem_of(request, 0, c.ranks(), c.gpus), "").name;
    const auto of_chosen =
        std::find_if(row.begin(), row.end(), [&](const Cell& cell) { return cell.algorithm == chosen; });
    texts.insert(texts.end(),
                 {best.algorithm, fmt::format("{}", best.on_network + best.on_racks), chosen,
                  of_chosen == row.end() ? "-" : fmt::format("{:.0f}%", 100 * (of_chosen->us / best.us - 1))});
    table.row(texts);
  }
  return title_of(o, c) + "\n" + table.plain();
}

int comm_bench(const CommBenchArgs& o) {
  if (o.clusters) {
    report::Table table({{"cluster"}, {"nodes", report::Align::right}, {"GPUs", report::Align::right}, {"source"}});
    for (const comm::Cluster& c : comm::cluster_presets())
      table.row({c.name, fmt::format("{}", c.nodes), fmt::format("{}", c.gpus), c.source});
    fmt::print("{}", table.plain());
    return 0;
  }
  check_range("--nodes", o.nodes, 0, 65536);
  check_range("--gpus", o.gpus, 0, 1024);
  check_range("--nics", o.nics, 0, 1024);
  check_range("--repeats", o.repeats, 1, 10000);
  comm::Cluster cluster = cluster_of(o);
  if (!o.out.empty()) {
    io::check_new_file(o.out + ".csv", ".csv");
    io::check_new_file(o.out + ".svg", ".svg");
  }
  comm::Request request{.op = op_named(o.op), .type = *dtype_of(o.dtype)};
  const std::vector<std::string> algorithms =
      parse_algorithms(o.algorithms, comm::problem_of(request, 0, cluster.ranks(), cluster.gpus));
  std::vector<comm::Request> requests;
  for (const int64_t bytes : parse_sizes("--bytes", o.sizes)) {
    request.count = bytes / size_of(request.type);
    // Every rank of an all-to-all sends equally many to each.
    if (request.op == comm::Op::all_to_all) request.count -= request.count % cluster.ranks();
    for (const std::string& name : algorithms) {
      request.algorithm = name;
      requests.push_back(request);
    }
  }
  const std::vector<Cell> cells = o.transport == "sim" ? simulated(cluster, requests) : measured(o, cluster, requests);
  if (cells.empty()) return 0;  // the other ranks of mpirun: rank 0 reports
  if (!o.out.empty()) {
    io::write_text_file(o.out + ".csv", csv_of(o, cells));
    io::write_text_file(o.out + ".svg", svg_of(o, cluster, algorithms, cells));
  }
  fmt::print("{}", o.json ? json_of(o, cluster, cells) : table_of(o, cluster, algorithms, cells));
  return 0;
}

}  // namespace

Action setup_comm_bench(Cli& cli) {
  auto o = std::make_shared<CommBenchArgs>();
  cli.choice("--op", o->op, {"allreduce", "allgather", "reducescatter", "alltoall", "broadcast", "reduce", "barrier"},
             "the operation");
  cli.option("--algorithm NAMES", o->algorithms, "comma-separated: ring,nvrar,...; all: every one that can do it");
  cli.choice("--transport", o->transport, {"sim", "inproc", "shm", "tcp", "mpi"},
             "virtual time on --cluster; or measured: threads, processes, sockets, mpirun's ranks");
  cli.option("--nodes", o->nodes, "nodes; 0: the cluster's, or 2 where ranks are measured");
  cli.option("--gpus", o->gpus, "ranks of a node; 0: likewise");
  cli.option("--nics", o->nics, "network cards of a node; 0: in the cluster's proportion");
  cli.option("--bytes SIZES", o->sizes, "of the whole vector: 16K:64M doubles, 1000,4K are two");
  cli.option("--cluster NAME", o->cluster, "of sim: a preset (h100-ib unless given) or a TOML file");
  cli.flag("--clusters", o->clusters, "list the presets and where their numbers are from");
  cli.choice("--dtype", o->dtype, {"F32", "BF16", "F16", "I32", "I64", "U8"}, "type of the elements");
  cli.option("--repeats", o->repeats, "measured calls; the fastest counts");
  cli.option("-o,--out PREFIX", o->out, "also write PREFIX.csv and a plot, PREFIX.svg");
  cli.flag("--json", o->json, "print one JSON object");
  return [o] { return comm_bench(*o); };
}

}  // namespace braid::apps
