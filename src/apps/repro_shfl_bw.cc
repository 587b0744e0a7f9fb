// braid repro shfl-bw: what a trained model keeps of its importance when it is pruned to patterns, its loss by density
// before and after a short training that keeps the zeros, and the density below which the product that skips them is
// faster than the dense one on this machine.
//   Shfl-BW (arXiv 2203.05016): 1.8 to 4.2 times at a density of 0.25 on GPUs, in the linear layers of a Transformer
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/commands.h"
#include "apps/model_args.h"
#include "apps/shfl_bw_study.h"
#include "apps/study.h"
#include "io/atomic_file.h"
#include "io/ordered_json.h"
#include "report/curve.h"
#include "report/progress.h"
#include "report/table.h"
#include "sys/interrupt.h"
#include "sys/machine.h"

namespace braid::apps {
namespace {
namespace fs = std::filesystem;
using nlohmann::ordered_json;
using report::Align;

struct ReproShflBwArgs {
  ShflBwStudy study;
  std::vector<int64_t> percents = {75, 50, 25};
  int64_t rounds = 7;
  bool json = false;
};

void write_losses(const ShflBwStudy& o, const PrunedStudy& r) {
  std::string csv = "pattern,density,retained,loss,trained_loss\n";
  csv += fmt::format("dense,1,1,{:.4f},{:.4f}\n", r.loss, r.trained_loss);
  report::Curve curve{.title = "loss of " + o.model + " by density, before and after training, measured",
                      .x_label = "density",
                      .y_label = "held-out loss, nats per token"};
  for (const masks::Pattern p : masks::kPatterns) {
    report::Series before{.label = name_of(p), .points = {}},
        after{.label = fmt::format("{}, trained", name_of(p)), .points = {}};
    for (auto cell = r.outcomes.rbegin(); cell != r.outcomes.rend(); ++cell) {  // densities descend
      if (cell->pattern != p) continue;
      before.points.emplace_back(cell->density, cell->loss);
      after.points.emplace_back(cell->density, cell->trained_loss);
    }
    curve.series.push_back(std::move(before));
    curve.series.push_back(std::move(after));
  }
  for (const PrunedOutcome& c : r.outcomes)
    csv += fmt::format("{},{:.4f},{:.4f},{:.4f},{:.4f}\n", name_of(c.pattern), c.density, c.retained, c.loss,
                       c.trained_loss);
  io::write_text_file(fs::path(o.dir) / "shfl-bw.csv", csv);
  io::write_text_file(fs::path(o.dir) / "shfl-bw.svg", report::svg(curve));
}

std::string text_of(const SpeedCell& c) {
  return fmt::format("{} x {}, {}, {} tokens", c.rows, c.cols, name_of(c.type), c.tokens);
}

void write_speeds(const ShflBwStudy& o, const SpeedStudy& r) {
  std::string csv = "rows,cols,type,tokens,density,times_as_fast,break_even\n";
  report::Curve curve{.title = "product that skips zeros over the dense one, one thread, measured",
                      .x_label = "density",
                      .y_label = "times as fast",
                      .log_y = true,
                      .log_x = true};
  for (const SpeedCell& c : r.cells) {
    report::Series series{.label = text_of(c), .points = {}};
    for (size_t i = 0; i < c.ratios.size(); ++i) {
      csv += fmt::format("{},{},{},{},{},{:.3f},{:.3f}\n", c.rows, c.cols, name_of(c.type), c.tokens, r.densities[i],
                         c.ratios[i], c.break_even);
      series.points.emplace_back(r.densities[i], c.ratios[i]);
    }
    if (c.rows == r.cells[0].rows) curve.series.push_back(std::move(series));  // of the first size
  }
  io::write_text_file(fs::path(o.dir) / "shfl-bw-speed.csv", csv);
  io::write_text_file(fs::path(o.dir) / "shfl-bw-speed.svg", report::svg(curve));
}

void print_steps(const std::vector<DecodeSpeed>& steps) {
  report::Table table({{"pattern"},
                       {"density", Align::right},
                       {"matrices", Align::right},
                       {"their MiB", Align::right},
                       {"without zeros", Align::right},
                       {"tokens/s", Align::right},
                       {"times as fast", Align::right}});
  constexpr double kMib = 1 << 20;
  for (const DecodeSpeed& s : steps)
    table.row({name_of(s.pattern), fmt::format("{:.3f}", s.density), std::to_string(s.matrices),
               fmt::format("{:.2f}", static_cast<double>(s.dense_bytes) / kMib),
               fmt::format("{:.2f}", static_cast<double>(s.bytes) / kMib), fmt::format("{:.0f}", s.tokens_s),
               fmt::format("{:.2f}", s.ratio)});
  fmt::print("{}\nSteps of one answer of the pruned models, --zeros skip over --zeros multiply, one thread.\n",
             table.markdown());
}

void print_tables(const ShflBwStudy& o, const PrunedStudy& pruned, const SpeedStudy& speed,
                  const std::vector<DecodeSpeed>& steps) {
  report::Table losses({{"pattern"},
                        {"density", Align::right},
                        {"importance kept", Align::right},
                        {"loss", Align::right},
                        {"after training", Align::right}});
  const auto row = [&](const char* name, double density, double retained, double loss, double trained) {
    losses.row({name, fmt::format("{:.3f}", density), fmt::format("{:.3f}", retained), fmt::format("{:.4f}", loss),
                fmt::format("{:.4f}", trained)});
  };
  row("dense", 1, 1, pruned.loss, pruned.trained_loss);
  for (const PrunedOutcome& c : pruned.outcomes) row(name_of(c.pattern), c.density, c.retained, c.loss, c.trained_loss);
  fmt::print("{}\nHeld-out loss of {}, groups of {} rows, {} steps of training that keep the zeros.\n\n",
             losses.markdown(), o.model, o.block, o.steps);
  std::vector<report::Column> columns = {{"product"}};
  for (const double d : speed.densities) columns.push_back({fmt::format("{:g}", d), Align::right});
  columns.push_back({"break-even", Align::right});
  report::Table times(std::move(columns));
  for (const SpeedCell& c : speed.cells) {
    std::vector<std::string> cells = {text_of(c)};
    for (const double ratio : c.ratios) cells.push_back(fmt::format("{:.2f}", ratio));
    cells.push_back(c.break_even == 0   ? fmt::format("< {:g}", speed.densities.front())
                    : c.break_even == 1 ? "none"
                                        : fmt::format("{:.2f}", c.break_even));
    times.row(std::move(cells));
  }
  fmt::print(
      "{}\nTimes as fast as the dense product by density, one thread of {}, groups of 32 rows; medians of ratios of "
      "interleaved rounds.\n",
      times.markdown(), sys::machine().cpu_name);
  print_steps(steps);
  fmt::print("written to {}: shfl-bw.csv, shfl-bw.svg, shfl-bw-speed.csv and shfl-bw-speed.svg\n", printable(o.dir));
}

void print_json(const ShflBwStudy& o, const PrunedStudy& pruned, const SpeedStudy& speed,
                const std::vector<DecodeSpeed>& steps) {
  ordered_json losses = ordered_json::array(), products = ordered_json::array(), decode = ordered_json::array();
  for (const DecodeSpeed& s : steps) {
    decode.push_back({{"pattern", name_of(s.pattern)},
                      {"density", s.density},
                      {"matrices", s.matrices},
                      {"dense_bytes", s.dense_bytes},
                      {"bytes", s.bytes},
                      {"tokens_s", s.tokens_s},
                      {"times_as_fast", s.ratio}});
  }
  for (const PrunedOutcome& c : pruned.outcomes) {
    losses.push_back({{"pattern", name_of(c.pattern)},
                      {"density", c.density},
                      {"retained", c.retained},
                      {"loss", c.loss},
                      {"trained_loss", c.trained_loss}});
  }
  for (const SpeedCell& c : speed.cells) {
    products.push_back({{"rows", c.rows},
                        {"cols", c.cols},
                        {"type", name_of(c.type)},
                        {"tokens", c.tokens},
                        {"times_as_fast", c.ratios},
                        {"break_even", c.break_even}});
  }
  const ordered_json j = {{"cpu_info", sys::machine().cpu_name},
                          {"model", o.model},
                          {"block", o.block},
                          {"steps", o.steps},
                          {"dense", {{"loss", pruned.loss}, {"trained_loss", pruned.trained_loss}}},
                          {"pruned", std::move(losses)},
                          {"densities", speed.densities},
                          {"products", std::move(products)},
                          {"decode", std::move(decode)}};
  fmt::print("{}\n", io::dumped(j, 1));
}

int repro_shfl_bw(ReproShflBwArgs o) {
  ShflBwStudy& study = o.study;
  check_range("--block", study.block, 1, 1024);
  check_range("--steps", study.steps, 1, 1000000);
  check_range("--rounds", o.rounds, 1, 1000);
  check_range("--threads", study.threads, 0, 1024);
  study.densities.clear();
  for (const int64_t percent : o.percents) {
    check_range("--densities", percent, 1, 99);
    study.densities.push_back(static_cast<double>(percent) / 100);
  }
  if (study.quick) {
    const ReproShflBwArgs plain;
    refuse_unread("--quick",
                  {{"--densities", o.percents != plain.percents}, {"--steps", study.steps != plain.study.steps}});
    study.densities = {0.5};
    study.steps = 2;
    study.train = 24;
    study.valid = 24;
    study.samples = study.held_out = 4;
  }
  begin_study(study.dir);
  std::optional<report::Progress> progress;
  const auto stage = [&](const char* name) {
    progress.reset();
    return [&progress, name](int64_t done, int64_t total) {
      if (!progress) progress.emplace(name, total);
      progress->at(done);
    };
  };
  const SpeedStudy speed = time_products(study, o.rounds, stage("timing products"));
  if (sys::caught_signal() != 0) return 128 + sys::caught_signal();
  const PrunedStudy pruned = prune_and_train(study, stage("pruning"));
  progress.reset();
  if (sys::caught_signal() != 0) return 128 + sys::caught_signal();
  const std::vector<DecodeSpeed> steps = time_steps(study, pruned, o.rounds);
  if (sys::caught_signal() != 0) return 128 + sys::caught_signal();
  write_losses(study, pruned);
  write_speeds(study, speed);
  o.json ? print_json(study, pruned, speed, steps) : print_tables(study, pruned, speed, steps);
  return 0;
}

}  // namespace

Action setup_repro_shfl_bw(Cli& cli) {
  auto o = std::make_shared<ReproShflBwArgs>();
  cli.option("--model", o->study.model, "a folder, org/name of the Hugging Face cache, or tiny");
  cli.option("--dir FOLDER", o->study.dir, "a new one, for text, models, CSV and SVG");
  cli.option("--densities", o->percents, "percentages of the weights that stay, a descending list");
  cli.option("--block", o->study.block, "rows of a group, and of a block also columns");
  cli.option("--steps", o->study.steps, "of training, 2,048 tokens each");
  cli.option("--rounds", o->rounds, "rounds, each of which times every product once");
  cli.option("-t,--threads", o->study.threads, "0: one per core; products are timed on one");
  cli.flag("--quick", o->study.quick, "one density, two steps, small products");
  cli.flag("--json", o->json, "print one JSON object");
  return [o] { return repro_shfl_bw(*o); };
}

}  // namespace braid::apps
