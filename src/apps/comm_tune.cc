// braid comm tune: every algorithm timed over a grid of nodes and sizes, as a table that calls can be chosen by
// (comm/selector.h), and what each way to choose loses to the best on points that it did not see.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/comm_cluster.h"
#include "apps/comm_times.h"
#include "apps/commands.h"
#include "apps/model_args.h"
#include "apps/split.h"
#include "io/atomic_file.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/error.h"

namespace braid::apps {
namespace {
using comm::Learner;
using comm::Regret;
using comm::TimedCall;
using nlohmann::ordered_json;

struct CommTuneArgs {
  CommArgs shared;
  std::string ops = "allreduce,allgather,reducescatter,alltoall", nodes = "2:64", sizes = "16K:64M", out;
  bool json = false;
};

constexpr Learner kLearners[] = {Learner::table, Learner::svm, Learner::costs};

std::vector<comm::Op> ops_of(const std::string& text) {
  std::vector<comm::Op> ops;
  for (const std::string& name : split(text)) {
    const comm::Op op = op_named("--op", name);
    if (op == comm::Op::barrier)
      fail("--op", {.what = "a barrier has no sizes to choose by", .got = "barrier", .expected = "other operations"});
    if (std::find(ops.begin(), ops.end(), op) == ops.end()) ops.push_back(op);
  }
  return ops;
}

// Every algorithm that can do it, at every size, on so many nodes.
std::vector<comm::Request> requests_of(const CommTuneArgs& o, comm::Op op, const comm::Cluster& cluster) {
  comm::Request request{.op = op, .type = *dtype_of(o.shared.dtype)};
  std::vector<comm::Request> requests;
  std::set<int64_t> sizes;
  for (const int64_t bytes : parse_sizes("--bytes", o.sizes)) {
    request.count = bytes / size_of(request.type);
    if (op == comm::Op::all_to_all) request.count -= request.count % cluster.ranks();
    if (request.count == 0 || !sizes.insert(request.count).second) continue;  // rounded down to what there is already
    const comm::Problem problem = o.shared.problem_of(request, cluster);
    for (const std::string& name : parse_algorithms("all", problem)) {
      request.algorithm = name;
      requests.push_back(request);
    }
  }
  return requests;
}

std::vector<TimedCall> timed(const CommTuneArgs& o, const std::vector<comm::Op>& ops) {
  std::vector<TimedCall> calls;
  std::vector<int64_t> nodes = parse_sizes("--nodes", o.nodes);
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  if (o.shared.under_mpirun()) nodes = {0};  // those of mpirun
  if (o.shared.transport == "nccl" && nodes.size() > 1)
    fail("--nodes",
         {.what = "are several, but a process begins with its GPU once", .got = o.nodes, .hint = "--nodes 1"});
  for (const int64_t count : nodes) {
    check_range("--nodes", count, o.shared.under_mpirun() ? 0 : 1, 65536);
    comm::Cluster cluster = o.shared.cluster_of(count);
    std::vector<comm::Request> requests;
    for (const comm::Op op : ops) {
      const std::vector<comm::Request> own = requests_of(o, op, cluster);
      requests.insert(requests.end(), own.begin(), own.end());
    }
    const std::vector<CommTime> times = time_calls(o.shared, cluster, requests);
    for (size_t i = 0; i < times.size(); ++i)
      calls.push_back({requests[i].op, cluster.nodes, cluster.gpus, times[i].bytes, times[i].algorithm, times[i].us});
  }
  return calls;
}

std::vector<TimedCall> calls_of(const std::vector<TimedCall>& calls, comm::Op op) {
  std::vector<TimedCall> own;
  std::copy_if(calls.begin(), calls.end(), std::back_inserter(own), [op](const TimedCall& c) { return c.op == op; });
  return own;
}

std::vector<std::string> cells_of(const Regret& r) {
  if (r.points == 0) return {"-", "-", "-"};
  return {fmt::format("{:.0f}%", 100 * r.right), fmt::format("{:.1f}%", 100 * r.mean),
          fmt::format("{:.0f}%", 100 * r.worst)};
}

ordered_json json_of(const Regret& r) {
  return {{"points", r.points}, {"right", r.right}, {"mean", r.mean}, {"worst", r.worst}};
}

// Every operation with each way to choose.
void report_regret(const CommTuneArgs& o, const std::vector<comm::Op>& ops, const std::vector<TimedCall>& calls) {
  using report::Align;
  report::Table table({{"operation"},
                       {"chosen by"},
                       {"right", Align::right},
                       {"regret", Align::right},
                       {"worst", Align::right},
                       {"new nodes: right", Align::right},
                       {"regret", Align::right},
                       {"worst", Align::right}});
  ordered_json rows = ordered_json::array();
  for (const comm::Op op : ops) {
    const std::vector<TimedCall> own = calls_of(calls, op);
    for (const Learner learner : kLearners) {
      const Regret held_out = comm::regret_on_held_out(own, learner),
                   new_nodes = comm::regret_on_new_nodes(own, learner);
      const char* name = comm::kLearnerNames[static_cast<size_t>(learner)];
      std::vector<std::string> row = {comm::name_of(op), name};
      for (const Regret& r : {held_out, new_nodes}) {
        const std::vector<std::string> cells = cells_of(r);
        row.insert(row.end(), cells.begin(), cells.end());
      }
      table.row(row);
      rows.push_back({{"op", comm::name_of(op)},
                      {"chosen_by", name},
                      {"held_out", json_of(held_out)},
                      {"new_nodes", json_of(new_nodes)}});
    }
  }
  const comm::Cluster cluster = o.shared.cluster_of(0);
  if (o.json) {
    fmt::print("{}\n",
               ordered_json{{"transport", o.shared.transport}, {"calls", calls.size()}, {"regret", rows}}.dump());
    return;
  }
  fmt::print("{} {} calls of {} ranks a node. Regret: time beyond the fastest algorithm's, at points held out\n{}",
             calls.size(), o.shared.simulates() ? fmt::format("modelled ({})", cluster.name) : "measured", cluster.gpus,
             table.plain());
  if (!o.out.empty()) fmt::print("written to {}: parallel.collectives of a recipe, --times of comm bench\n", o.out);
}

int comm_tune(const CommTuneArgs& o) {
  const std::vector<comm::Op> ops = ops_of(o.ops);
  o.shared.check();
  if (!o.out.empty()) io::check_new_file(o.out, ".csv");
  const std::vector<TimedCall> calls = timed(o, ops);
  if (calls.empty()) return 0;  // the other ranks of mpirun: rank 0 reports
  if (!o.out.empty()) io::write_text_file(o.out, comm::times_csv(calls));
  report_regret(o, ops, calls);
  return 0;
}

}  // namespace

Action setup_comm_tune(Cli& cli) {
  auto o = std::make_shared<CommTuneArgs>();
  cli.option("--op NAMES", o->ops, "the operations, comma-separated");
  cli.option("--nodes NUMBERS", o->nodes, "of nodes: 2:64 doubles, 2,3,8 are three; over MPI those of mpirun");
  cli.option("--bytes SIZES", o->sizes, "of the whole vector, likewise");
  o->shared.declare(cli);
  cli.option("-o,--out FILE", o->out, "the times as a table, FILE.csv, to choose by");
  cli.flag("--json", o->json, "print one JSON object");
  return [o] { return comm_tune(*o); };
}

}  // namespace braid::apps
