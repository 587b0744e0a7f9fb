#include "apps/comm_times.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "apps/comm_cluster.h"
#include "apps/model_args.h"
#include "comm/inproc.h"
#include "comm/mpi.h"
#include "comm/nccl.h"
#include "comm/shm.h"
#include "comm/tcp.h"
#include "comm/timing.h"
#include "report/progress.h"
#include "report/units.h"
#include "sys/error.h"
#include "sys/read.h"

namespace braid::apps {
namespace {

std::vector<CommTime> simulated(const comm::Cluster& cluster, const std::vector<comm::Request>& requests) {
  std::vector<CommTime> times;
  report::Progress progress(fmt::format("simulating {}", report::counted(cluster.nodes, "node")), std::ssize(requests));
  for (const comm::Request& r : requests) {
    progress.at(std::ssize(times));
    const comm::SimResult s = comm::simulate(cluster, r);
    times.push_back({r.algorithm, r.count * size_of(r.type), s.us, s.bytes[0], s.bytes[1], s.bytes[2],
                     s.messages[0] + s.messages[1] + s.messages[2]});
  }
  return times;
}

}  // namespace

void CommArgs::declare(Cli& options) {
  cli = &options;
  options.choice("--transport", transport, {"sim", "inproc", "shm", "tcp", "mpi", "nccl"},
                 "virtual time on --cluster; or measured: threads, processes, sockets, mpirun's ranks, a GPU a rank");
  options.option("--gpus", gpus, "ranks of a node; 0: the cluster's, or 2 where ranks are measured");
  options.option("--nics", nics, "network cards of a node; 0: in the cluster's proportion");
  options.option("--cluster NAME", cluster, "of sim: a preset (h100-ib unless given) or a TOML file");
  options.choice("--dtype", dtype, {"F32", "BF16", "F16", "I32", "I64", "U8"}, "type of the elements");
  options.option("--nccl FILE", nccl, "NCCL's library, for --transport nccl");
  options.option("--repeats", repeats, "measured calls; the fastest counts");
}

bool CommArgs::under_mpirun() const {
  return transport == "mpi" || (transport == "nccl" && comm::ranks_of_mpirun() > 0);
}

void CommArgs::check() const {
  check_range("--gpus", gpus, 0, 1024);
  check_range("--nics", nics, 0, 1024);
  check_range("--repeats", repeats, 1, 10000);
  if (simulates() && cli->given("repeats"))
    fail("--repeats", {.what = "is for what is measured: virtual time is the same every time",
                       .got = "--transport sim",
                       .hint = "--transport shm"});
}

comm::Cluster CommArgs::cluster_of(int64_t nodes) const {
  if (!simulates() && (!cluster.empty() || nics > 0)) {
    fail(cluster.empty() ? "--nics" : "--cluster",
         {.what = "is for virtual time", .got = "--transport " + transport, .hint = "--transport sim"});
  }
  comm::Cluster c = find_cluster(cluster.empty() ? "h100-ib" : cluster);
  if (nodes > 0) c.nodes = static_cast<int>(nodes);
  if (gpus > 0) {
    // As many cards a GPU as before, where that goes.
    c.nics = static_cast<int>(std::max<int64_t>(1, gpus * c.nics / c.gpus));
    c.gpus = static_cast<int>(gpus);
  }
  if (nics > 0) c.nics = static_cast<int>(nics);
  if (!simulates()) {
    // Not the cluster's: 2 nodes of 2, over GPUs one of 2, and over MPI as many as mpirun started.
    c.gpus = static_cast<int>(gpus > 0 ? gpus : under_mpirun() ? 1 : 2);
    c.nodes = static_cast<int>(nodes > 0 ? nodes : transport == "nccl" ? 1 : 2);
  }
  const int64_t most = simulates() ? 65536 : 256;
  if (int64_t{c.nodes} * c.gpus > most)
    fail("--nodes", {.what = "are too many ranks",
                     .got = fmt::format("{} nodes of {}", c.nodes, c.gpus),
                     .expected = fmt::format("at most {} ranks over {}", most, transport)});
  return c;
}

comm::Problem CommArgs::problem_of(const comm::Request& request, const comm::Cluster& on) const {
  comm::Problem p = comm::problem_of(request, 0, on.ranks(), on.gpus);
  p.alone = transport == "mpi";  // no call of NCCL blocks
  p.native = p.alone || transport == "nccl";
  return p;
}

comm::Op op_named(const char* flag, const std::string& name) {
  std::vector<std::string> names;
  for (int k = 0; k < 7; ++k) {
    const auto op = static_cast<comm::Op>(k);
    std::string joined = comm::name_of(op);
    if (name == joined) return op;
    std::erase(joined, '_');
    if (name == joined) return op;
    names.push_back(joined);
  }
  fail(flag,
       {.what = "is not an operation", .got = printable(name), .expected = fmt::format("{}", fmt::join(names, ", "))});
}

std::vector<comm::TimedCall> read_times_file(const std::string& path) {
  return comm::read_times(path, sys::read_file(path, comm::kTimesBytesMost));
}

std::vector<CommTime> time_calls(const CommArgs& args, comm::Cluster& cluster,
                                 const std::vector<comm::Request>& requests, int64_t nodes) {
  if (args.simulates()) return simulated(cluster, requests);
  std::vector<CommTime> times;
  const auto all = [&](comm::Group& world) {
    if (world.size() % cluster.gpus != 0)
      fail("--gpus", {.what = "does not divide the ranks", .got = fmt::format("{} of {}", cluster.gpus, world.size())});
    cluster.nodes = world.size() / cluster.gpus;
    if (nodes > 0 && nodes != cluster.nodes)
      fail("--nodes", {.what = "are not those of mpirun",
                       .got = fmt::format("{} nodes of {}", nodes, cluster.gpus),
                       .expected = report::counted(world.size(), "rank")});
    std::optional<report::Progress> progress;
    if (world.rank() == 0)
      progress.emplace(fmt::format("timing {}", report::counted(cluster.nodes, "node")), std::ssize(requests));
    for (const comm::Request& r : requests) {
      if (progress) progress->at(std::ssize(times));
      const comm::Measured m = comm::measure(world, r, static_cast<int>(args.repeats));
      if (world.rank() == 0)
        times.push_back({r.algorithm, r.count * size_of(r.type), m.us, m.traffic.bytes[0], m.traffic.bytes[1], 0,
                         m.traffic.messages[0] + m.traffic.messages[1], !r.algorithm.starts_with("native")});
    }
  };
  comm::Options options{.per_node = cluster.gpus, .alone = true};
  if (args.transport == "nccl") {
    options.nccl = args.nccl;
    comm::check_nccl(args.nccl);  // once, not by every rank
  }
  if (args.transport == "inproc") comm::run_in_process(cluster.ranks(), options, all);
  if (args.transport == "shm" || (args.transport == "nccl" && !args.under_mpirun()))
    comm::run_in_processes(cluster.ranks(), options, all);
  if (args.transport == "tcp") comm::run_over_loopback(cluster.ranks(), options, all);
  if (args.under_mpirun()) comm::run_under_mpi(options, all);
  return times;
}

}  // namespace braid::apps
