// braid law sweep: a grid of small models trained for a scaling law, with losses at several numbers of tokens each
// (apps/sweep.h).
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/model_args.h"
#include "apps/sweep.h"
#include "io/atomic_file.h"
#include "report/progress.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/error.h"
#include "sys/interrupt.h"

namespace braid::apps {
namespace {

struct LawSweepArgs {
  std::string recipe, grid, dir = "sweep", out;
  std::vector<std::string> overrides;
  int64_t points = 4, threads = 0;
  double decay = 0.2, lr_power = 0;
  bool dry_run = false, json = false;
};

SweepSpec spec_of(const LawSweepArgs& o, bool lr_power_given) {
  check_range("--points", o.points, 1, 30);
  check_range("--threads", o.threads, 0, 1024);
  if (!(o.decay > 0 && o.decay <= 0.9))
    fail("--decay", {.what = "out of range", .got = fmt::format("{}", o.decay), .expected = "above 0, 0.9 at most"});
  if (!(o.lr_power >= -2 && o.lr_power <= 2))
    fail("--lr-power", {.what = "out of range", .got = fmt::format("{}", o.lr_power), .expected = "-2 to 2"});
  if (o.grid.empty()) fail("--grid", {.what = "is missing", .expected = "widths and depths, like 64,128x4,8"});
  SweepSpec spec{.recipe = train::read_recipe(o.recipe, o.overrides),
                 .shapes = read_grid(o.grid),
                 .points = o.points,
                 .decay = o.decay,
                 .lr_power = o.lr_power,
                 .dir = std::filesystem::absolute(o.dir)};
  // By muP the rate of matrices falls with their width; Muon's updates are scaled already.
  if (!lr_power_given) spec.lr_power = spec.recipe.optimizer.kind == "muon" ? 0 : 1;
  return spec;
}

// Prints the grid with what it costs; nothing is trained but a few steps of each shape, for their time.
int print_grid(const LawSweepArgs& o, const SweepSpec& spec, const std::vector<Branches>& all) {
  using report::Align;
  report::Table table({{"run"},
                       {"params", Align::right},
                       {"active", Align::right},
                       {"lr", Align::right},
                       {"tokens of its rows"},
                       {"steps left", Align::right},
                       {"FLOPs left", Align::right},
                       {"a step", Align::right},
                       {"time left", Align::right}});
  nlohmann::ordered_json runs = nlohmann::ordered_json::array();
  double flops = 0, seconds = 0;
  Arena arena;
  Ctx ctx{.arena = arena};
  if (o.threads > 0) ctx.threads = static_cast<int>(o.threads);
  report::Progress progress("timing steps", std::ssize(all));
  for (const Branches& branches : all) {
    const SweepRow& last = branches.back().row;
    const int64_t left = steps_left(spec, branches);
    const double step = step_seconds(spec, last.shape, ctx);
    if (sys::caught_signal() != 0) return 128 + sys::caught_signal();
    progress.at(&branches - all.data() + 1);
    const auto steps = static_cast<double>(left);
    std::string tokens;
    std::vector<double> token_list;
    for (const SweepBranch& b : branches) {
      tokens += (tokens.empty() ? "" : ", ") + report::count(b.row.tokens);
      token_list.push_back(b.row.tokens);
    }
    flops += steps * flops_per_step(branches);
    seconds += steps * step;
    table.row({last.shape.name(), report::count(last.params), report::count(last.active),
               fmt::format("{:.3g}", last.lr), tokens, std::to_string(left),
               report::count(steps * flops_per_step(branches)), report::duration(step),
               report::duration(steps * step)});
    runs.push_back({{"run", last.shape.name()},
                    {"params", last.params},
                    {"active", last.active},
                    {"lr", last.lr},
                    {"tokens", token_list},
                    {"steps_left", left},
                    {"flops_left", steps * flops_per_step(branches)},
                    {"step_seconds", step},
                    {"seconds_left", steps * step}});
  }
  progress.wipe();
  if (o.json) {
    fmt::print("{}\n", nlohmann::ordered_json{{"runs", runs}, {"flops_left", flops}, {"seconds_left", seconds}}.dump());
    return 0;
  }
  fmt::print("{}{} shapes, {} rows; left: {}FLOPs, {} at the speed of a few steps timed here\n", table.plain(),
             all.size(), std::ssize(all) * spec.points, report::count(flops), report::duration(seconds));
  return 0;
}

void print_row(const LawSweepArgs& o, const SweepRow& row) {
  std::string line = json_of(row);
  if (!o.json) {
    line = fmt::format("{:<12} {:>8} params  {:>8} tokens  loss {:.4f}", row.shape.name(), report::count(row.params),
                       report::count(row.tokens), row.loss);
    if (row.floor > 0) line += fmt::format(", {:.4f} above the entropy of the source", row.loss - row.floor);
  }
  fmt::print("{}\n", line);
  std::fflush(stdout);  // minutes before the next one
}

int law_sweep(const LawSweepArgs& o, bool lr_power_given) {
  const SweepSpec spec = spec_of(o, lr_power_given);
  const std::vector<Branches> all = grid_of(spec);
  for (const std::string& line : overruled_words(spec.recipe)) fmt::print(stderr, "note: {}\n", line);
  sys::catch_requests_to_stop();
  sys::end_at_second_interrupt();
  if (o.dry_run) return print_grid(o, spec, all);
  if (!o.out.empty()) io::check_new_file(o.out, ".csv");
  open_sweep(spec);
  const std::filesystem::path table = o.out.empty() ? spec.dir / "runs.csv" : std::filesystem::path(o.out);
  const int code = train_grid(spec, all, o.threads, table, [&](const SweepRow& row) { print_row(o, row); });
  if (code < 128 && !o.json) fmt::print("{} rows in {}\n", rows_in(spec.dir).size(), printable(table.string()));
  return code;
}

}  // namespace

Action setup_law_sweep(Cli& cli) {
  auto o = std::make_shared<LawSweepArgs>();
  cli.positional("recipe", o->recipe, "TOML as braid train reads it; config, batch, length, steps of the longest run");
  cli.rest("key=value", o->overrides, "keys of the recipe");
  cli.option("--grid GRID", o->grid, "widths and depths, \"64,128x4,8 256x8\": hidden_size and layers");
  cli.option("--points", o->points, "rows of a run: at all steps, half of them, a quarter ...");
  cli.option("--decay", o->decay, "share of a row's steps in which the rate falls");
  cli.option("--lr-power", o->lr_power, "the rate falls with this power of the width");
  cli.says("1; 0 with muon");
  cli.option("--dir FOLDER", o->dir, "of the runs; one that was stopped goes on there");
  cli.option("-o,--out RUNS.csv", o->out, "the rows, for braid law fit; default: FOLDER/runs.csv");
  cli.flag("--dry-run", o->dry_run, "print the grid: parameters, tokens, FLOPs, and the time by a few steps of each");
  cli.option("-t,--threads", o->threads, "0: all cores");
  cli.flag("--json", o->json, "a row as JSON on a line; with --dry-run, the grid as one object");
  return [o, cli] { return law_sweep(*o, cli.given("lr-power")); };
}

}  // namespace braid::apps
