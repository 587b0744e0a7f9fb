#include "apps/bench_tune_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "report/table.h"
#include "sys/env.h"

namespace braid::apps {

using nlohmann::ordered_json;
using report::Align;

std::vector<tune::BlockingFinding> tune_training(engine::Runner& runner, int64_t tokens, const tune::Options& options,
                                                 const tune::Progress& progress) {
  std::set<std::pair<int64_t, int64_t>> shapes;
  for (const Param* p : runner.model().params()) {
    const ParamRole r = p->role;
    const bool other = r == ParamRole::embedding || r == ParamRole::positions || r == ParamRole::router ||
                       r == ParamRole::head || p->experts > 0;
    if (is_matrix(r) && !other && p->value) shapes.emplace(p->value.rows, p->value.cols);
  }
  std::vector<PackedProduct> products;
  for (const auto& [rows, cols] : shapes) {
    const auto more = tune::training_products({rows, cols}, tokens, options.x, options.threads);
    products.insert(products.end(), more.begin(), more.end());
  }
  std::vector<tune::BlockingFinding> findings;
  if (products.empty()) return findings;
  const PackedLimits limits = packed_limits(products[0].c, options.threads);
  for (const PackedProduct& p : products) {
    progress(std::ssize(findings), std::ssize(products));
    tune::BlockingTimer timer(p);
    findings.push_back(tune::search_blocking(p, limits, {}, [&](const auto& b) { return timer.seconds(b); }));
  }
  return findings;
}

std::string blocking_lines(const std::vector<tune::BlockingFinding>& findings) {
  std::string text;
  std::set<std::string> measured;
  for (const tune::BlockingFinding& f : findings) {
    const std::string name = name_of(f.of.key());
    if (!measured.insert(name).second) continue;
    if (f.chosen == f.initial) {
      text += fmt::format("# {} = {}: the default\n", name, text_of(f.initial));
    } else {
      text += fmt::format("{} = {}  # default {}; {:.2f} times as fast\n", name, text_of(f.chosen), text_of(f.initial),
                          f.gain);
    }
  }
  for (const auto& [name, row] : sys::env().profile_rows) {
    if (packed::parse_key(name) && !measured.contains(name)) text += fmt::format("{} = {}\n", name, row);
  }
  return text;
}

ordered_json blocking_list(const std::vector<tune::BlockingFinding>& findings) {
  ordered_json list = ordered_json::array();
  for (const tune::BlockingFinding& f : findings)
    list.push_back({{"product", name_of(f.of.key())},
                    {"default", text_of(f.initial)},
                    {"chosen", text_of(f.chosen)},
                    {"gain", f.gain},
                    {"gflops", f.gflops},
                    {"trials", f.trials}});
  return list;
}

std::string blocking_table(const std::vector<tune::BlockingFinding>& findings) {
  if (findings.empty()) return "";
  report::Table table({{"training product"},
                       {"default"},
                       {"chosen"},
                       {"gain", Align::right},
                       {"GFLOP/s", Align::right},
                       {"tried", Align::right}});
  for (const tune::BlockingFinding& f : findings) {
    const bool same = f.chosen == f.initial;
    table.row({name_of(f.of.key()), text_of(f.initial), same ? "the default" : text_of(f.chosen),
               same ? "-" : fmt::format("{:.2f}", f.gain), fmt::format("{:.0f}", f.gflops), fmt::to_string(f.trials)});
  }
  return table.plain();
}

void print_blockings() {
  if (packed::blockings().empty()) return;
  report::Table table({{"training product"}, {"rows x columns x depth of its blocks"}, {"from"}});
  for (const auto& [key, blocking] : packed::blockings()) {
    const std::string name = name_of(key);
    table.row({name, text_of(blocking), sys::env().forced_rows.contains(name) ? "BRAID_OP" : "the profile"});
  }
  fmt::print("\n{}", table.markdown());
}

}  // namespace braid::apps
