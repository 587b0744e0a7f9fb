#include "apps/prune_pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/model_args.h"
#include "io/ordered_json.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/error.h"

namespace braid::apps {
namespace {

using nlohmann::ordered_json;

std::vector<std::string> pattern_names() {
  std::vector<std::string> names;
  for (const masks::Pattern p : masks::kPatterns) names.emplace_back(name_of(p));
  return names;
}

double share(double part, double whole) { return whole > 0 ? part / whole : 1; }

prune::SparseGroup sum_of(const prune::SparseReport& report) {
  prune::SparseGroup all{.role = "all"};
  for (const prune::SparseGroup& g : report.groups) {
    all.matrices += g.matrices;
    all.values += g.values;
    all.kept += g.kept;
    all.score += g.score;
    all.kept_score += g.kept_score;
  }
  return all;
}

ordered_json json_of(const prune::SparseGroup& g) {
  return {{"role", g.role},
          {"matrices", g.matrices},
          {"values", g.values},
          {"density", share(static_cast<double>(g.kept), static_cast<double>(g.values))},
          {"retained", share(g.kept_score, g.score)}};
}

}  // namespace

void PatternArgs::declare(Cli& cli) {
  cli.choice("--pattern", pattern, pattern_names(), "instead of --target: zeros in the layers' matrices");
  cli.option("--density", density, "with --pattern: share of the weights that stays");
  cli.option("--block", block, "with --pattern: rows of a group, and of a block also columns");
}

masks::Spec PatternArgs::spec() const {
  const auto found = std::find_if(std::begin(masks::kPatterns), std::end(masks::kPatterns),
                                  [&](masks::Pattern p) { return name_of(p) == pattern; });
  masks::Spec spec{.pattern = *found, .density = density, .block = block};
  if (spec.pattern == masks::Pattern::two_four) {
    if (density != 0 && density != 0.5)
      fail("--density", {.what = "does not go with 2:4", .got = fmt::format("{}", density), .expected = "0.5"});
    spec.density = 0.5;
  }
  if (!(spec.density > 0 && spec.density <= 1))
    fail("--density", {.what = density == 0 ? "is not given" : "is out of range",
                       .got = fmt::format("{}", density),
                       .expected = "above 0, up to 1",
                       .hint = "--density 0.5"});
  check_range("--block", block, 1, 1 << 16);
  const bool groups = spec.pattern != masks::Pattern::two_four && spec.pattern != masks::Pattern::unstructured;
  if (!groups) refuse_unread(("--pattern " + pattern).c_str(), {{"--block", block != PatternArgs{}.block}});
  return spec;
}

void refuse_pattern_options(const PatternArgs& o) {
  for (const auto& [set, flag] :
       {std::pair(o.density != 0, "--density"), std::pair(o.block != PatternArgs{}.block, "--block")}) {
    if (set) fail(flag, {.what = "goes with --pattern alone", .hint = "--pattern shfl-bw"});
  }
}

void print_sparse(const PatternArgs& o, const SparseRun& run, const prune::SparseReport& r) {
  const prune::SparseGroup all = sum_of(r);
  if (run.json) {
    ordered_json groups = ordered_json::array();
    for (const prune::SparseGroup& g : r.groups) groups.push_back(json_of(g));
    const ordered_json j = {{"model", run.model},     {"output", run.out},
                            {"pattern", o.pattern},   {"block", o.block},
                            {"score", run.score},     {"samples", r.samples},
                            {"tokens", r.tokens},     {"params", r.params},
                            {"pruned", json_of(all)}, {"groups", std::move(groups)},
                            {"misfits", r.misfits},   {"loss", {{"before", r.parent_loss}, {"after", r.child_loss}}}};
    fmt::print("{}\n", io::dumped(j));
    return;
  }
  using report::Align;
  report::Table table({{"role"},
                       {"matrices", Align::right},
                       {"weights", Align::right},
                       {"density", Align::right},
                       {"importance kept", Align::right}});
  const auto row = [&](const prune::SparseGroup& g) {
    table.row({g.role, std::to_string(g.matrices), report::count(static_cast<double>(g.values)),
               fmt::format("{:.4f}", share(static_cast<double>(g.kept), static_cast<double>(g.values))),
               fmt::format("{:.4f}", share(g.kept_score, g.score))});
  };
  for (const prune::SparseGroup& g : r.groups) row(g);
  row(all);
  fmt::print("{}", table.plain());
  for (const std::string& misfit : r.misfits) fmt::print("stays whole: {}\n", printable(misfit));
  const double density = share(static_cast<double>(all.kept), static_cast<double>(all.values));
  if (std::abs(density - o.spec().density) > 0.02)
    fmt::print(
        "note: density {:.2f} instead of {:g}: groups of {} leave small matrices little choice; try a smaller "
        "--block\n",
        density, o.spec().density, o.block);
  fmt::print("\nloss {:.4f} -> {:.4f} on {} of {} tokens, before any training\n", r.parent_loss, r.child_loss,
             report::counted(r.samples, "sample"), r.tokens);
  fmt::print("{}: {} of {} parameters are zeros\n", printable(run.out),
             report::count(static_cast<double>(all.values - all.kept)), report::count(static_cast<double>(r.params)));
}

}  // namespace braid::apps
