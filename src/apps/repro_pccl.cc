// braid repro pccl: published speedups of PCCL over the vendors' libraries beside what the same algorithms gain over a
// flat ring on equal links, in virtual time; with --out from 8 endpoints to that many, with the sizes at which one
// algorithm overtakes another.
//   https://arxiv.org/abs/2504.18658
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "apps/comm_scaling.h"
#include "apps/commands.h"
#include "apps/model_args.h"
#include "comm/sim.h"
#include "io/atomic_file.h"
#include "report/curve.h"
#include "report/progress.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/error.h"

namespace braid::apps {
namespace {
using nlohmann::ordered_json;

// Speedups at 2,048 endpoints, as the paper's text gives them; `bytes` within the range that each is given for. What a
// rank contributes to an all-gather and gets of a reduce-scatter is `bytes` over the endpoints.
struct Published {
  const char* cluster;
  comm::Op op;
  int64_t bytes;
  const char* library;
  double speedup;
};
constexpr int64_t kMiB = 1 << 20;
constexpr Published kPublished[] = {
    {"frontier", comm::Op::all_gather, 256 * kMiB, "RCCL", 33},
    {"perlmutter", comm::Op::all_gather, 256 * kMiB, "NCCL", 5.7},
    {"frontier", comm::Op::reduce_scatter, 256 * kMiB, "RCCL", 168},
    {"perlmutter", comm::Op::reduce_scatter, 256 * kMiB, "NCCL", 4.2},
    {"frontier", comm::Op::all_reduce, 128 * kMiB, "RCCL", 5.8},
    {"perlmutter", comm::Op::all_reduce, 128 * kMiB, "NCCL", 1.3},
};

struct Modelled {
  double ring = 0, pccl_ring = 0, pccl_recursive = 0;
  double best() const { return std::min(pccl_ring, pccl_recursive); }
};

Modelled modelled(const Published& row, int64_t endpoints) {
  comm::Cluster cluster = *comm::cluster_preset(row.cluster);
  cluster.nodes = static_cast<int>(endpoints / cluster.gpus);
  const auto us = [&](const char* algorithm) {
    const int64_t count = row.bytes / 2 / endpoints * endpoints;
    return comm::simulate(cluster, {.op = row.op, .algorithm = algorithm, .type = DType::bf16, .count = count}).us;
  };
  return {us("ring"), us("pccl_ring"), us("pccl_recursive")};
}

std::vector<Modelled> all_modelled(int64_t endpoints) {
  std::vector<Modelled> all;
  report::Progress progress("simulating", std::ssize(kPublished));
  for (const Published& row : kPublished) {
    progress.at(std::ssize(all));
    all.push_back(modelled(row, endpoints));
  }
  return all;
}

struct PcclArgs {
  int64_t endpoints = 2048;
  std::string out;
  bool json = false;
};

const std::vector<const char*> kRing = {"ring"}, kPcclRing = {"pccl_ring"}, kPcclRecursive = {"pccl_recursive"},
                               kPccl = {"pccl_ring", "pccl_recursive"};
constexpr comm::Op kScaled[] = {comm::Op::all_gather, comm::Op::reduce_scatter};

Scaling scaling_of(int64_t endpoints) {
  return Scaling({{*comm::cluster_preset("frontier"), *comm::cluster_preset("perlmutter")},
                  {std::begin(kScaled), std::end(kScaled)},
                  doubled(8, endpoints),
                  doubled(16 * kMiB, 1024 * kMiB),
                  {"ring", "pccl_ring", "pccl_recursive"}});
}

std::string svg_of(const Scaling& s, comm::Op op) {
  report::Curve curve{
      .title = fmt::format("{}, the faster PCCL algorithm over a ring of all ranks: virtual time", comm::name_of(op)),
      .x_label = "endpoints",
      .y_label = "times as fast",
      .log_x = true};
  for (const comm::Cluster& cluster : s.grid().clusters) {
    for (const int64_t bytes : {16 * kMiB, 256 * kMiB, 1024 * kMiB}) {
      report::Series& series = curve.series.emplace_back();
      series.label = fmt::format("{}, {}", cluster.name, report::bytes(bytes));
      for (const int64_t ranks : s.grid().ranks)
        series.points.emplace_back(
            ranks, s.best_us(cluster.name, op, ranks, bytes, kRing) / s.best_us(cluster.name, op, ranks, bytes, kPccl));
    }
  }
  return report::svg(curve);
}

void print_crossovers(const Scaling& s) {
  using report::Align;
  report::Table table({{"cluster"},
                       {"operation"},
                       {"endpoints", Align::right},
                       {"16 MiB", Align::right},
                       {"256 MiB", Align::right},
                       {"1 GiB", Align::right},
                       {"faster than the ring"},
                       {"recursive faster than pccl_ring"}});
  for (const comm::Cluster& cluster : s.grid().clusters) {
    for (const comm::Op op : s.grid().ops) {
      for (const int64_t ranks : s.grid().ranks) {
        const auto times = [&](int64_t bytes) {
          return fmt::format("{:.2f} x", s.best_us(cluster.name, op, ranks, bytes, kRing) /
                                             s.best_us(cluster.name, op, ranks, bytes, kPccl));
        };
        if (ranks <= cluster.gpus) continue;  // one node has one level
        table.row({cluster.name, comm::name_of(op), std::to_string(ranks), times(16 * kMiB), times(256 * kMiB),
                   times(1024 * kMiB), s.faster_at(cluster.name, op, ranks, kPccl, kRing),
                   s.faster_at(cluster.name, op, ranks, kPcclRecursive, kPcclRing)});
      }
    }
  }
  fmt::print(
      "\nThe faster PCCL algorithm over a ring of all ranks, modelled, 16 MiB to 1 GiB, and the sizes at which it is "
      "the "
      "faster\n{}",
      table.plain());
}

int repro_pccl(const PcclArgs& o) {
  const int64_t endpoints = o.endpoints;
  if (!o.out.empty()) io::check_new_files(o.out, {".csv", "-all_gather.svg", "-reduce_scatter.svg"}, true);
  check_range("--endpoints", endpoints, 16, 4096);
  if (endpoints % 8 != 0)
    fail("--endpoints",
         {.what = "are not whole nodes", .got = std::to_string(endpoints), .expected = "a multiple of 8"});
  using report::Align;
  report::Table table({{"cluster"},
                       {"operation"},
                       {"size", Align::right},
                       {"ring us", Align::right},
                       {"pccl_ring", Align::right},
                       {"pccl_recursive", Align::right},
                       {"speedup", Align::right},
                       {"published"}});
  ordered_json rows = ordered_json::array();
  const std::vector<Modelled> ours = all_modelled(endpoints);
  for (size_t i = 0; i < std::size(kPublished); ++i) {
    const Published& row = kPublished[i];
    const Modelled& m = ours[i];
    table.row({row.cluster, comm::name_of(row.op), report::bytes(row.bytes), fmt::format("{:.0f}", m.ring),
               fmt::format("{:.0f}", m.pccl_ring), fmt::format("{:.0f}", m.pccl_recursive),
               fmt::format("{:.1f}", m.ring / m.best()), fmt::format("{:g} over {}", row.speedup, row.library)});
    rows.push_back(
        {{"cluster", row.cluster},
         {"op", comm::name_of(row.op)},
         {"bytes", row.bytes},
         {"modelled_us", {{"ring", m.ring}, {"pccl_ring", m.pccl_ring}, {"pccl_recursive", m.pccl_recursive}}},
         {"published_speedup", row.speedup},
         {"published_over", row.library}});
  }
  std::optional<Scaling> scaling;
  if (!o.out.empty()) {
    scaling.emplace(scaling_of(endpoints));
    io::write_text_file(o.out + ".csv", scaling->csv());
    for (const comm::Op op : kScaled)
      io::write_text_file(fmt::format("{}-{}.svg", o.out, comm::name_of(op)), svg_of(*scaling, op));
  }
  if (o.json) {
    ordered_json object = {{"endpoints", endpoints}, {"rows", rows}};
    if (scaling) object["scaling"] = scaling->json();
    fmt::print("{}\n", object.dump());
    return 0;
  }
  fmt::print(
      "{} endpoints, modelled; published at 2048. Speedup: of the faster PCCL algorithm over a ring of all ranks\n{}\n"
      "Both sides have the same links and no software of their own: the model has what the algorithm saves, rounds "
      "and\n"
      "bytes on the network, and not what a library loses elsewhere.\n",
      endpoints, table.plain());
  if (scaling) print_crossovers(*scaling);
  return 0;
}

}  // namespace

Action setup_repro_pccl(Cli& cli) {
  auto o = std::make_shared<PcclArgs>();
  cli.option("--endpoints", o->endpoints, "GPUs in all, whole nodes of 4 and 8; 2048 takes a minute");
  cli.option("-o,--out PREFIX", o->out,
             "also play 8 endpoints to that many: PREFIX.csv, PREFIX-all_gather.svg, PREFIX-reduce_scatter.svg");
  cli.flag("--json", o->json, "print one JSON object");
  return [o] { return repro_pccl(*o); };
}

}  // namespace braid::apps
