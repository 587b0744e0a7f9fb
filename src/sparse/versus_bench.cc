// sparse_bench: every way to run spmm beside Eigen, librsb and GraphBLAS, where they are installed: one thread, one
// process, the same matrix and features, interleaved (race.h), results compared. Speeds are medians of the rounds,
// ratios medians of the ratios of a round. --quick takes smaller graphs and fewer widths.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>

#include "graph/generate.h"
#include "report/table.h"
#include "sparse/peers.h"
#include "sparse/problem.h"
#include "sparse/race.h"
#include "sys/check.h"
#include "sys/machine.h"
#include "sys/roofs.h"

namespace braid::sparse {
namespace {

struct NamedGraph {
  const char* name;
  graph::Csr csr;
};

std::vector<NamedGraph> graphs(bool quick) {
  const int scale = quick ? 12 : 16;
  const int64_t nodes = int64_t{1} << scale, side = quick ? 64 : 512;
  std::vector<NamedGraph> list;
  list.push_back({quick ? "rmat12" : "rmat16", graph::rmat_graph(scale, 16, 1)});
  list.push_back({quick ? "er12" : "er16", graph::uniform_graph(nodes, nodes * 27 / 2, 1)});
  list.push_back({quick ? "grid64" : "grid512", graph::grid_graph(side, side)});
  return list;
}

// GraphBLAS has a result of its own, which is not compared.
void check_result(const std::string& name, const std::vector<float>& want, const Tensor& y) {
  const auto* got = y.view().as<float>();
  for (size_t i = 0; i < want.size(); ++i)
    CHECK(std::fabs(got[i] - want[i]) <= 1e-3f * (1 + std::fabs(want[i])), "{}: element {} is {}, not {}", name, i,
          got[i], want[i]);
}

double least(const std::vector<double>& seconds) { return *std::min_element(seconds.begin(), seconds.end()); }

struct Entry {
  std::string name;
  std::function<void()> run;
  bool own = true;
  std::function<void()> write_y{};  // of a peer whose result lies elsewhere
};

// What any product that reads a row of x per edge, in the order of edges, waits for on this machine: a number of each
// cache line of the row, asked for 16 edges ahead. No result.
void read_rows(const graph::Csr& csr, const float* x, int64_t width, float& sum) {
  constexpr int64_t kAhead = 16, kLine = 16;
  const int64_t last = csr.edges() - 1;
  const auto* col = csr.col.data();
  float total = 0;
  for (int64_t e = 0; e <= last; ++e) {
    const float *row = x + col[e] * width, *next = x + col[std::min(e + kAhead, last)] * width;
    for (int64_t c = 0; c < width; c += kLine) {
      __builtin_prefetch(next + c);
      total += row[c];
    }
  }
  sum = total;
}

std::vector<Entry> entries_of(Problem& p) {
  std::vector<Entry> list;
  for (const Way& way : ways()) {
    if (auto run = p.run(way)) list.push_back({way.name, std::move(run)});
  }
  std::vector<Peer> peers;
  const PeerProblem problem{.rows = p.csr().rows,
                            .cols = p.csr().cols,
                            .edges = p.csr().edges(),
                            .width = p.width(),
                            .rowptr = p.csr().rowptr.data(),
                            .col = p.csr().col.data(),
                            .value = p.edge().view().as<float>(),
                            .x = p.x().view().as<float>(),
                            .y = p.y().mut().as<float>()};
  add_eigen(peers, problem);
  add_librsb(peers, problem);
  add_graphblas(peers, problem);
  for (Peer& peer : peers) list.push_back({peer.name, std::move(peer.run), false, std::move(peer.write_y)});
  std::vector<float> want;
  for (const Entry& entry : list) {
    std::fill_n(p.y().mut().as<float>(), p.y().view().count(), std::numeric_limits<float>::quiet_NaN());
    entry.run();
    if (entry.write_y) entry.write_y();
    const auto* y = p.y().view().as<float>();
    if (want.empty()) want.assign(y, y + p.y().view().count());
    check_result(entry.name, want, p.y());
    if (entry.own)
      CHECK(std::memcmp(want.data(), y, want.size() * 4) == 0, "{} has other bits than {}", entry.name, list[0].name);
  }
  return list;
}

void compare(const NamedGraph& g, int64_t width, report::Table& table) {
  Problem p(g.csr, width);
  const std::vector<Entry> list = entries_of(p);
  std::vector<std::function<void()>> runs;
  runs.reserve(list.size());
  for (const Entry& entry : list) runs.push_back(entry.run);
  float sum = 0;
  runs.emplace_back([&] { read_rows(g.csr, p.x().view().as<float>(), width, sum); });
  const auto seconds = race(runs, 7, 1e-2);
  size_t best = 0;
  for (size_t k = 0; k < list.size() && list[k].own; ++k) {
    if (median(seconds[k]) < median(seconds[best])) best = k;
  }
  std::string own, peers;
  for (size_t k = 0; k < list.size(); ++k) {
    const std::string speed = fmt::format("{} {:.2f} to {:.2f}", list[k].name, 1e-9 * p.flops() / median(seconds[k]),
                                          1e-9 * p.flops() / least(seconds[k]));
    std::string& line = list[k].own ? own : peers;
    line += (line.empty() ? "" : ", ") + speed;
    if (!list[k].own)
      line += fmt::format(" ({:.2f} x, {:.2f} x)", median_ratio(seconds[k], seconds[best]),
                          least(seconds[k]) / least(seconds[best]));
  }
  const double rate = 1e9 * sys::roofs().read_gbs_1 * median(seconds[best]);  // bytes that could be read meanwhile
  table.row({g.name, std::to_string(width), list[best].name, own, peers,
             fmt::format("{:.0f}% {:.0f}%", 100 * p.bytes_least() / rate, 100 * p.bytes_most() / rate),
             fmt::format("{:.0f}%", 100 * median_ratio(seconds.back(), seconds[best]))});
}

}  // namespace
}  // namespace braid::sparse

int main(int argc, char** argv) {
  using namespace braid;
  using namespace braid::sparse;
  const bool quick = argc > 1 && std::string_view(argv[1]) == "--quick";
  report::Table table({{"graph"},
                       {"width", report::Align::right},
                       {"best way"},
                       {"GFLOP/s"},
                       {"peers GFLOP/s (best way is faster by)"},
                       {"of the bounds of bytes"},
                       {"of reading rows alone", report::Align::right}});
  for (const auto& g : graphs(quick)) {
    for (const int64_t width : {1, 4, 16, 64, 128}) {
      if (!quick || width < 128) compare(g, width, table);
    }
  }
  fmt::print(
      "{}\n{}\nOne thread of {}, {:.1f} GB/s read; medians of 7 interleaved rounds. Bounds: each source read once, "
      "and one per edge; caches exceed the latter. Reading alone: a number of every cache line of the source of each "
      "edge, in their order, from wherever it is.\n",
      sys::machine().cpu_name, table.markdown(), sys::machine().cpu_name, sys::roofs().read_gbs_1);
  return 0;
}
