#include "apps/comm_scaling.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "report/progress.h"
#include "report/units.h"

namespace braid::apps {
namespace {

comm::Cluster with_ranks(comm::Cluster cluster, int64_t ranks) {
  cluster.gpus = static_cast<int>(std::min<int64_t>(cluster.gpus, ranks));
  cluster.nics = std::min(cluster.nics, cluster.gpus);
  cluster.nodes = static_cast<int>(ranks) / cluster.gpus;
  return cluster;
}

bool can(const comm::Cluster& cluster, const comm::Request& request) {
  const comm::Problem problem = comm::problem_of(request, 0, cluster.ranks(), cluster.gpus);
  return std::ranges::any_of(comm::algorithms(), [&](const comm::Algorithm& a) {
    return a.op == request.op && a.name == request.algorithm && a.refuses(problem) == nullptr;
  });
}

}  // namespace

std::vector<int64_t> doubled(int64_t from, int64_t to) {
  std::vector<int64_t> list;
  for (int64_t n = from; n <= to; n *= 2) list.push_back(n);
  return list;
}

Scaling::Scaling(const ScalingGrid& grid) : grid_(grid) {
  report::Progress progress("simulating", std::ssize(grid.clusters) * std::ssize(grid.ops) * std::ssize(grid.ranks));
  int64_t done = 0;
  for (const comm::Cluster& base : grid.clusters) {
    for (const comm::Op op : grid.ops) {
      for (const int64_t ranks : grid.ranks) {
        progress.at(++done);
        const comm::Cluster cluster = with_ranks(base, ranks);
        for (const int64_t bytes : grid.bytes) {
          for (const char* algorithm : grid.algorithms) {
            const int64_t count = bytes / size_of(DType::bf16) / ranks * ranks;
            const comm::Request request{.op = op, .algorithm = algorithm, .type = DType::bf16, .count = count};
            if (!can(cluster, request)) continue;
            const comm::SimResult result = comm::simulate(cluster, request);
            cells_.push_back({base.name, op, ranks, bytes, algorithm, result.us, result.bytes[1] + result.bytes[2]});
          }
        }
      }
    }
  }
}

double Scaling::best_us(const char* cluster, comm::Op op, int64_t ranks, int64_t bytes,
                        const std::vector<const char*>& algorithms) const {
  double best = std::numeric_limits<double>::infinity();
  for (const ScalingCell& c : cells_) {
    if (c.cluster != cluster || c.op != op || c.ranks != ranks || c.bytes != bytes) continue;
    const bool among = std::ranges::any_of(algorithms, [&](std::string_view name) { return name == c.algorithm; });
    if (among) best = std::min(best, c.us);
  }
  return best;
}

std::string Scaling::faster_at(const char* cluster, comm::Op op, int64_t ranks,
                               const std::vector<const char*>& algorithms,
                               const std::vector<const char*>& others) const {
  std::vector<double> ratios;  // logarithms; above 0: faster
  for (const int64_t bytes : grid_.bytes)
    ratios.push_back(
        std::log(best_us(cluster, op, ranks, bytes, others) / best_us(cluster, op, ranks, bytes, algorithms)));
  if (std::ranges::all_of(ratios, [](double r) { return r > 0; })) return "all";
  std::vector<std::string> runs;
  std::string begun;  // the size at which the last run did; empty: the smallest
  const auto size_between = [&](size_t i) {
    const double at = ratios[i - 1] / (ratios[i - 1] - ratios[i]);
    const auto below = static_cast<double>(grid_.bytes[i - 1]), above = static_cast<double>(grid_.bytes[i]);
    return report::bytes(static_cast<int64_t>(below * std::pow(above / below, at)));
  };
  for (size_t i = 0; i < ratios.size(); ++i) {
    const bool faster = ratios[i] > 0, before = i > 0 && ratios[i - 1] > 0;
    if (faster && !before) begun = i == 0 ? "" : size_between(i);
    if (!faster && before)
      runs.push_back(begun.empty() ? "up to " + size_between(i) : fmt::format("{} to {}", begun, size_between(i)));
  }
  if (ratios.back() > 0) runs.push_back("from " + begun);
  return runs.empty() ? "none" : fmt::format("{}", fmt::join(runs, ", "));
}

std::string Scaling::csv() const {
  std::string text = "cluster,op,ranks,bytes,algorithm,modelled_us,network_bytes\n";
  for (const ScalingCell& c : cells_)
    text += fmt::format("{},{},{},{},{},{:.3f},{}\n", c.cluster, comm::name_of(c.op), c.ranks, c.bytes, c.algorithm,
                        c.us, c.network_bytes);
  return text;
}

nlohmann::ordered_json Scaling::json() const {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const ScalingCell& c : cells_)
    rows.push_back({{"cluster", c.cluster},
                    {"op", comm::name_of(c.op)},
                    {"ranks", c.ranks},
                    {"bytes", c.bytes},
                    {"algorithm", c.algorithm},
                    {"modelled_us", c.us},
                    {"network_bytes", c.network_bytes}});
  return rows;
}

}  // namespace braid::apps
