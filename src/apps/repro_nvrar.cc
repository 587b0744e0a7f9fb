// braid repro nvrar: the published times of NVRAR beside the simulation's. Each size is predicted by a cluster whose
// launch time and network rate were fitted to the other sizes alone; then NVRAR beside other algorithms on the cluster
// that fits all of them; with --out on 2 to 64 nodes, with the sizes at which it overtakes a ring and a double tree.
//   https://arxiv.org/abs/2511.09557; times from its public code's tuning on 16 A100
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/comm_scaling.h"
#include "apps/commands.h"
#include "apps/model_args.h"
#include "comm/published.h"
#include "io/atomic_file.h"
#include "io/ordered_json.h"
#include "report/curve.h"
#include "report/table.h"
#include "report/units.h"

namespace braid::apps {
namespace {
using nlohmann::ordered_json;

struct NvrarArgs {
  const Cli* cli = nullptr;
  std::string out;
  int64_t nodes = 64;
  bool json = false;
};

constexpr const char* kOthers[] = {"ring", "double_tree", "recursive", "rabenseifner", "two_level"};

double us_of(const comm::Cluster& cluster, const char* algorithm, int64_t bytes) {
  return comm::simulate(cluster, {.op = comm::Op::all_reduce,
                                  .algorithm = algorithm,
                                  .type = DType::bf16,
                                  .count = bytes / size_of(DType::bf16)})
      .us;
}

// Of an all-reduce of 16 KiB to 64 MiB. NCCL has rings and double trees.
const std::vector<const char*> kOwn = {"nvrar"}, kLibrary = {"ring", "double_tree"};

Scaling scaling_of(const comm::Cluster& fit, int64_t nodes) {
  std::vector<int64_t> ranks = doubled(2, nodes);
  for (int64_t& n : ranks) n *= fit.gpus;
  std::vector<const char*> algorithms = kOwn;
  algorithms.insert(algorithms.end(), std::begin(kOthers), std::end(kOthers));
  return Scaling({{fit}, {comm::Op::all_reduce}, ranks, doubled(16 << 10, 64 << 20), algorithms});
}

double speedup(const Scaling& s, int64_t ranks, int64_t bytes) {
  const char* cluster = s.grid().clusters[0].name;
  return s.best_us(cluster, comm::Op::all_reduce, ranks, bytes, kLibrary) /
         s.best_us(cluster, comm::Op::all_reduce, ranks, bytes, kOwn);
}

std::string svg_of(const Scaling& s) {
  report::Curve curve{.title = "NVRAR over the faster of ring and double tree, BF16, nodes of 4 A100: virtual time",
                      .x_label = "bytes",
                      .y_label = "times as fast",
                      .log_x = true};
  for (const int64_t ranks : s.grid().ranks) {
    report::Series& series = curve.series.emplace_back();
    series.label = fmt::format("{} nodes", ranks / s.grid().clusters[0].gpus);
    for (const int64_t bytes : s.grid().bytes) series.points.emplace_back(bytes, speedup(s, ranks, bytes));
  }
  return report::svg(curve);
}

void print_scaling(const Scaling& s) {
  using report::Align;
  report::Table table({{"nodes", Align::right},
                       {"128 KiB", Align::right},
                       {"512 KiB", Align::right},
                       {"2 MiB", Align::right},
                       {"most", Align::right},
                       {"at", Align::right},
                       {"faster"},
                       {"fastest of all six"}});
  const comm::Cluster& cluster = s.grid().clusters[0];
  for (const int64_t ranks : s.grid().ranks) {
    const auto times = [&](int64_t bytes) { return fmt::format("{:.2f} x", speedup(s, ranks, bytes)); };
    const int64_t most =
        *std::ranges::max_element(s.grid().bytes, {}, [&](int64_t bytes) { return speedup(s, ranks, bytes); });
    const std::vector<const char*> others(std::begin(kOthers), std::end(kOthers));
    table.row({std::to_string(ranks / cluster.gpus), times(128 << 10), times(512 << 10), times(2 << 20), times(most),
               report::bytes(most), s.faster_at(cluster.name, comm::Op::all_reduce, ranks, kOwn, kLibrary),
               s.faster_at(cluster.name, comm::Op::all_reduce, ranks, kOwn, others)});
  }
  fmt::print(
      "\nNVRAR over the faster of ring and double tree, 16 KiB to 64 MiB, modelled, and the sizes at which it is the "
      "faster\n{}\n"
      "Published over NCCL: 1.9 to 3.6 at most between 128 KiB and 2 MiB; by size, as recalled, 0.7 to 0.8 at 64 and "
      "128 KiB,\n1.06 to 1.44 from 256 KiB. Here both sides have the same launch, the same latency of a step and the "
      "same links, so that\nonly rounds and bytes count: without puts from the GPU itself, which the library's proxy "
      "lacks, and without the sizes at\nwhich the library is slower than its own algorithm.\n",
      table.plain());
}

int repro_nvrar(const NvrarArgs& o) {
  check_range("--nodes", o.nodes, 2, 1024);
  if (o.out.empty() && o.cli->given("nodes"))
    fail("--nodes", {.what = "applies only with --out", .got = std::to_string(o.nodes), .hint = "-o PREFIX"});
  if (!o.out.empty()) io::check_new_files(o.out, {".csv", ".svg"}, true);
  const comm::Cluster& preset = *comm::cluster_preset("perlmutter-nvrar");
  const comm::Request nvrar{.op = comm::Op::all_reduce, .algorithm = "nvrar", .type = DType::bf16};
  const auto points = comm::published_nvrar();
  const std::vector<double> predicted = comm::leave_one_out(preset, nvrar, points);
  const comm::Cluster fit = comm::fitted(preset, nvrar, points);
  report::Table table({{"size", report::Align::right},
                       {"published us", report::Align::right},
                       {"predicted us", report::Align::right},
                       {"error", report::Align::right}});
  ordered_json rows = ordered_json::array();
  for (size_t i = 0; i < points.size(); ++i) {
    const double error = predicted[i] / points[i].us - 1;
    table.row({report::bytes(points[i].bytes), fmt::format("{:.1f}", points[i].us), fmt::format("{:.1f}", predicted[i]),
               fmt::format("{:+.1f}%", 100 * error)});
    rows.push_back({{"bytes", points[i].bytes}, {"published_us", points[i].us}, {"predicted_us", predicted[i]}});
  }
  report::Table others({{"size", report::Align::right},
                        {"nvrar us", report::Align::right},
                        {"ring", report::Align::right},
                        {"double_tree", report::Align::right},
                        {"recursive", report::Align::right},
                        {"rabenseifner", report::Align::right},
                        {"two_level", report::Align::right}});
  ordered_json modelled = ordered_json::array();
  for (int64_t bytes = 16 << 10; bytes <= 4 << 20; bytes *= 4) {
    const double own = us_of(fit, "nvrar", bytes);
    std::vector<std::string> cells = {report::bytes(bytes), fmt::format("{:.1f}", own)};
    ordered_json row = {{"bytes", bytes}, {"nvrar", own}};
    for (const char* other : kOthers) {
      const double us = us_of(fit, other, bytes);
      cells.push_back(fmt::format("{:.2f} x", us / own));
      row[other] = us;
    }
    others.row(cells);
    modelled.push_back(row);
  }
  std::optional<Scaling> scaling;
  if (!o.out.empty()) {
    scaling.emplace(scaling_of(fit, o.nodes));
    io::write_text_file(o.out + ".csv", scaling->csv());
    io::write_text_file(o.out + ".svg", svg_of(*scaling));
  }
  if (o.json) {
    ordered_json object = {{"launch_us", fit.launch_us},
                           {"network_gb_per_s", fit.network.gb_per_s},
                           {"leave_one_out", rows},
                           {"modelled_us", modelled}};
    if (scaling) object["scaling"] = scaling->json();
    fmt::print("{}\n", io::dumped(object));
    return 0;
  }
  fmt::print("NVRAR on 4 nodes of 4 A100, BF16: each size predicted from the other five\n{}\n", table.plain());
  fmt::print(
      "all six: launch {:.1f} us, network {:.2f} GB/s a GPU. Other algorithms with that launch and these links,\n"
      "modelled, as multiples of NVRAR's time (a library's own launch and protocol are not in them):\n{}",
      fit.launch_us, fit.network.gb_per_s, others.plain());
  if (scaling) print_scaling(*scaling);
  return 0;
}

}  // namespace

Action setup_repro_nvrar(Cli& cli) {
  auto o = std::make_shared<NvrarArgs>();
  o->cli = &cli;
  cli.option("-o,--out PREFIX", o->out, "also play 2 to 64 nodes: PREFIX.csv and a plot, PREFIX.svg");
  cli.option("--nodes", o->nodes, "most nodes of that");
  cli.flag("--json", o->json, "print one JSON object");
  return [o] { return repro_nvrar(*o); };
}

}  // namespace braid::apps
