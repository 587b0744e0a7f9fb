#include "apps/repro_spmm_tree.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "io/atomic_file.h"
#include "io/ordered_json.h"
#include "report/progress.h"
#include "report/table.h"
#include "sparse/samples.h"
#include "sys/machine.h"

namespace braid::apps {
namespace {
using nlohmann::ordered_json;

ordered_json json_of(const sparse::Regret& r) { return {{"mean", r.mean}, {"worst", r.worst}, {"of_best", r.of_best}}; }

// What a selector must reach on graphs that it was not grown from.
constexpr double kMeanMost = 0.05, kWorstMost = 0.25, kOfBestLeast = 0.975;
bool holds(const sparse::Regret& r) {
  return r.mean <= kMeanMost && r.worst <= kWorstMost && r.of_best >= kOfBestLeast;
}

}  // namespace

int repro_spmm_tree(const TreeArgs& o) {
  std::vector<sparse::Sample> samples;
  int64_t graphs = 0;
  const auto named = sparse::sample_graphs(o.quick);
  std::optional<report::Progress> progress(std::in_place, "timing", std::ssize(named));
  for (const sparse::NamedGraph& g : named) {
    progress->at(graphs);
    sparse::measure(g.name, g.make(), o.widths, static_cast<int>(o.rounds), samples);
    ++graphs;
  }
  progress.reset();
  if (!o.csv.empty()) io::write_text_file(o.csv, sparse::csv_of(samples));
  const sparse::Regret held_out = regret_of(samples, sparse::leave_one_graph_out(samples));
  const std::vector<sparse::Node> tree = sparse::grow(samples);
  std::vector<int> own, built_in;
  for (const sparse::Sample& s : samples) {
    own.push_back(decide(tree, s.features));
    built_in.push_back(decide(sparse::built_in_tree(), s.features));
  }
  std::vector<std::pair<std::string, sparse::Regret>> rows = {{"graphs left out", held_out},
                                                              {"grown from all", regret_of(samples, own)},
                                                              {"built in", regret_of(samples, built_in)}};
  for (int way = 0; way < sparse::kWays && !sparse::ways()[static_cast<size_t>(way)].packed; ++way)
    rows.emplace_back(std::string("always ") + sparse::ways()[static_cast<size_t>(way)].name,
                      regret_of(samples, std::vector<int>(samples.size(), way)));
  if (o.json) {
    ordered_json all = {{"graphs", graphs}, {"samples", samples.size()}};
    for (const auto& [name, regret] : rows) all[name] = json_of(regret);
    all["gate"] = {{"mean", kMeanMost}, {"worst", kWorstMost}, {"of_best", kOfBestLeast}, {"holds", holds(held_out)}};
    fmt::print("{}\n", io::dumped(all, 1));
    return 0;
  }
  report::Table table({{"choice"},
                       {"mean regret", report::Align::right},
                       {"worst", report::Align::right},
                       {"of the best", report::Align::right}});
  for (const auto& [name, r] : rows)
    table.row({name, fmt::format("{:.1f}%", 100 * r.mean), fmt::format("{:.1f}%", 100 * r.worst),
               fmt::format("{:.3f}", r.of_best)});
  fmt::print(
      "{} samples of {} graphs on {}\n{}\nThe gate, for graphs left out: mean at most {:.0f}%, worst {:.0f}%, at least "
      "{} of the best: {}.\n\nThe tree, as src/sparse/tree_table.cc has it:\n{}",
      samples.size(), graphs, sys::machine().cpu_name, table.markdown(), 100 * kMeanMost, 100 * kWorstMost,
      kOfBestLeast, holds(held_out) ? "it holds" : "it does not hold", text_of(tree));
  return 0;
}

}  // namespace braid::apps
