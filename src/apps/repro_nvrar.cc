// braid repro nvrar: the published times of NVRAR beside the simulation's. Each size is predicted by a cluster whose
// launch time and network rate were fitted to the other sizes alone; then NVRAR beside other algorithms on the cluster
// that fits all of them.
//   https://arxiv.org/abs/2511.09557; times from its public code's tuning on 16 A100
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "comm/published.h"
#include "io/ordered_json.h"
#include "report/table.h"
#include "report/units.h"

namespace braid::apps {
namespace {
using nlohmann::ordered_json;

constexpr const char* kOthers[] = {"ring", "double_tree", "recursive", "rabenseifner", "two_level"};

double us_of(const comm::Cluster& cluster, const char* algorithm, int64_t bytes) {
  return comm::simulate(cluster, {.op = comm::Op::all_reduce,
                                  .algorithm = algorithm,
                                  .type = DType::bf16,
                                  .count = bytes / size_of(DType::bf16)})
      .us;
}

int repro_nvrar(bool json) {
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
  if (json) {
    const ordered_json object = {{"launch_us", fit.launch_us},
                                 {"network_gb_per_s", fit.network.gb_per_s},
                                 {"leave_one_out", rows},
                                 {"modelled_us", modelled}};
    fmt::print("{}\n", io::dumped(object));
    return 0;
  }
  fmt::print("NVRAR on 4 nodes of 4 A100, BF16: each size predicted from the other five\n{}\n", table.plain());
  fmt::print(
      "all six: launch {:.1f} us, network {:.2f} GB/s a GPU. Other algorithms with that launch and these links,\n"
      "modelled, as multiples of NVRAR's time (a library's own launch and protocol are not in them):\n{}",
      fit.launch_us, fit.network.gb_per_s, others.plain());
  return 0;
}

}  // namespace

Action setup_repro_nvrar(Cli& cli) {
  auto json = std::make_shared<bool>(false);
  cli.flag("--json", *json, "print one JSON object");
  return [json] { return repro_nvrar(*json); };
}

}  // namespace braid::apps
