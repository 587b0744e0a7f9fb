// braid repro eda: the quality of result of logic synthesis, predicted. A graph network with an embedding of recipes
// learns what area and delay abc reaches on circuits by recipes (tools/eda/label.py made them), and orders recipes that
// it has not seen on circuits that it has or has not seen: beside what recipes alone and counts of their steps tell,
// the regret of trying the few that it puts first beside chance, and its time beside the tool's.
//   the task and its splits: OpenABC-D (arXiv 2110.11292); a survey: arXiv 2102.03357
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/eda_report.h"
#include "apps/model_args.h"
#include "eda/fold.h"
#include "gnn/network.h"
#include "io/atomic_file.h"
#include "report/progress.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/error.h"
#include "sys/interrupt.h"
#include "sys/parallel.h"

namespace braid::apps {
namespace {
using nlohmann::ordered_json;
using report::Align;

struct EdaArgs {
  std::string data = "bench/data/eda", model = "gin", csv, svg;
  eda::ModelSpec spec;
  std::vector<int64_t> folds = {0, 1, 2, 3, 4};
  int64_t threads = 0;
  bool quick = false, json = false;
};

constexpr eda::Part kUnseenParts[] = {eda::Part::recipes, eda::Part::designs, eda::Part::both};
constexpr size_t kShown[] = {0, 3, 4};  // of kTops

std::string percent(double part) { return fmt::format("{:.2f}%", 100 * part); }

template <class Of>
double total_of(const EdaStudy& s, Of of) {
  double sum = 0;
  for (const eda::FoldResult& r : s.results) sum += static_cast<double>(of(r));
  return sum;
}

void print_study(const EdaArgs& o, const EdaStudy& s) {
  report::Table table({{"held out"},
                       {"of"},
                       {"orders", Align::right},
                       {"Spearman", Align::right},
                       {"least", Align::right},
                       {"> 0.5", Align::right},
                       {"recipe alone", Align::right},
                       {"step counts", Align::right},
                       {"R2", Align::right},
                       {"regret of 1, 5, 10", Align::right},
                       {"by chance", Align::right}});
  int64_t constant = 0, left_out = 0;
  for (const eda::Part part : kUnseenParts) {
    for (size_t t = 0; t < eda::kTargetCount; ++t) {
      const eda::Summary sum = eda::summary_of(s.scores, part, t), alone = eda::summary_of(s.alone, part, t);
      constant += sum.constant;
      left_out += sum.left_out;
      if (sum.designs == 0) continue;
      const auto shown = [](const auto& list) {
        return fmt::format("{}, {}, {}", percent(list[kShown[0]]), percent(list[kShown[1]]), percent(list[kShown[2]]));
      };
      table.row({eda::kPartNames[static_cast<size_t>(part)], eda::kTargets[t], std::to_string(sum.designs),
                 fmt::format("{:.3f}", sum.spearman), fmt::format("{:.3f}", sum.least), std::to_string(sum.above_half),
                 fmt::format("{:.3f}", alone.spearman), fmt::format("{:.3f}", sum.counts),
                 sum.determination ? fmt::format("{:.3f}", *sum.determination) : "-", shown(sum.regret),
                 shown(sum.chance)});
    }
  }
  const eda::FoldResult& first = s.results[0];
  const double predict = total_of(s, [](const auto&r) { return r.predict_seconds; }),
               tool = total_of(s, [](const auto&r) { return r.tool_seconds; });
  fmt::print(
      "{}\n{} designs x {} recipes, {} distinct results; {} of {} folds held out in turn, by family and by recipe. A "
      "{} of {} layers and {} parameters, {} epochs; loss {:.3f} to {:.3f} of a variance of 1 (fold {}). Means over "
      "the orders of recipes within a design, one for each fold and design with at least {} results.\n",
      table.plain(), s.labels.designs.size(), s.labels.recipes.size(), first.distinct, s.folds.size(), eda::kFolds,
      o.model, o.spec.network.layers, first.parameters, o.spec.epochs, first.first_loss, first.last_loss, s.folds[0],
      eda::kLeastSamples);
  if (constant + left_out > 0)
    fmt::print(
        "Of these {} had one prediction for all recipes and count 0; {} more had one result for all and count "
        "nothing.\n",
        constant, left_out);
  fmt::print("Predicting {:.0f} results of unseen designs: {} of one thread; abc took {}: {:.0f} times.\n",
             total_of(s, [](const auto& r) { return r.predicted; }), report::duration(predict), report::duration(tool),
             tool / predict);
  fmt::print("A step on {} samples of {} designs, one thread: {} with each circuit computed once, {} once a sample.\n",
             first.batch.samples, first.batch.circuits, report::duration(first.batch.once),
             report::duration(first.batch.each));
}

void print_eda_json(const EdaArgs& o, const EdaStudy& s) {
  ordered_json rows = ordered_json::array();
  for (const eda::Part part : kUnseenParts) {
    for (size_t t = 0; t < eda::kTargetCount; ++t) {
      const eda::Summary sum = eda::summary_of(s.scores, part, t), alone = eda::summary_of(s.alone, part, t);
      ordered_json row = {{"held_out", eda::kPartNames[static_cast<size_t>(part)]},
                          {"target", eda::kTargets[t]},
                          {"orders", sum.designs},
                          {"samples", sum.samples},
                          {"constant", sum.constant},
                          {"left_out", sum.left_out},
                          {"spearman", sum.spearman},
                          {"spearman_least", sum.least},
                          {"above_half", sum.above_half},
                          {"recipe_alone", alone.spearman},
                          {"step_counts", sum.counts},
                          {"tried", eda::kTops},
                          {"regret", sum.regret},
                          {"counts_regret", sum.counts_regret},
                          {"chance_regret", sum.chance}};
      if (sum.determination) row["determination"] = *sum.determination;
      rows.push_back(std::move(row));
    }
  }
  const eda::FoldResult& first = s.results[0];
  const ordered_json times = {{"predicted", total_of(s, [](const auto& r) { return r.predicted; })},
                              {"predict_seconds", total_of(s, [](const auto& r) { return r.predict_seconds; })},
                              {"tool_seconds", total_of(s, [](const auto& r) { return r.tool_seconds; })},
                              {"batch_samples", first.batch.samples},
                              {"batch_circuits", first.batch.circuits},
                              {"batch_once_seconds", first.batch.once},
                              {"batch_each_seconds", first.batch.each}};
  const ordered_json j = {{"designs", s.labels.designs.size()},
                          {"recipes", s.labels.recipes.size()},
                          {"results", s.labels.designs.size() * s.labels.recipes.size()},
                          {"distinct", first.distinct},
                          {"folds", s.folds},
                          {"model", o.model},
                          {"parameters", first.parameters},
                          {"epochs", o.spec.epochs},
                          {"first_loss", first.first_loss},
                          {"last_loss", first.last_loss},
                          {"rows", std::move(rows)},
                          {"times", times}};
  fmt::print("{}\n", j.dump(1));
}

int repro_eda(EdaArgs o) {
  eda::QorSpec& net = o.spec.network;
  if (o.quick) {
    const EdaArgs plain;
    const eda::QorSpec& own = plain.spec.network;
    refuse_unread("--quick", {{"--epochs", o.spec.epochs != plain.spec.epochs},
                              {"--hidden", net.hidden != own.hidden},
                              {"--width", net.width != own.width},
                              {"--inner", net.inner != own.inner},
                              {"--folds", o.folds != plain.folds}});
    o.spec.epochs = 2, net.hidden = 8, net.width = 4, net.inner = 16, o.folds = {0};
  }
  check_range("--layers", net.layers, 1, 16);
  check_range("--hidden", net.hidden, 1, 1024);
  check_range("--width", net.width, 1, 256);
  check_range("--inner", net.inner, 1, 4096);
  check_range("--epochs", o.spec.epochs, 1, 100000);
  check_range("--batch", o.spec.batch, 1, 1 << 20);
  check_range("--seed", o.spec.seed, 0, int64_t{1} << 32);
  check_range("--threads", o.threads, 0, 1024);
  for (const int64_t fold : o.folds) check_range("--folds", fold, 0, eda::kFolds - 1);
  if (!o.csv.empty()) io::check_new_file(o.csv, ".csv");
  if (!o.svg.empty()) io::check_new_file(o.svg, ".svg");
  net.kind = *gnn::kind_of(o.model);
  o.spec.threads = o.threads > 0 ? static_cast<int>(o.threads) : sys::default_threads();
  EdaStudy study{.labels = eda::read_labels(o.data), .folds = o.folds};
  sys::catch_requests_to_stop();
  sys::end_at_second_interrupt();
  for (size_t f = 0; f < o.folds.size(); ++f) {
    std::optional<report::Progress> progress;
    const auto done = [&](int64_t step, int64_t steps) {
      if (!progress) progress.emplace(fmt::format("fold {} of {}", f + 1, o.folds.size()), steps);
      progress->at(step);
    };
    std::optional<eda::FoldResult> result = eda::run_fold(study.labels, o.spec, o.folds[f], done);
    if (!result) return 128 + sys::caught_signal();
    study.scores.insert(study.scores.end(), result->scores.begin(), result->scores.end());
    study.alone.insert(study.alone.end(), result->alone.begin(), result->alone.end());
    study.results.push_back(std::move(*result));
  }
  if (!o.csv.empty()) io::write_text_file(o.csv, eda_csv(study));
  if (!o.svg.empty()) io::write_text_file(o.svg, eda_svg(study));
  o.json ? print_eda_json(o, study) : print_study(o, study);
  return 0;
}

}  // namespace

Action setup_repro_eda(Cli& cli) {
  auto o = std::make_shared<EdaArgs>();
  cli.option("--data FOLDER", o->data, "circuits and their labels (tools/eda/label.py)");
  cli.choice("--model", o->model, {"gcn", "sage", "gin", "gat"}, "of the circuits");
  cli.option("--layers", o->spec.network.layers, "of it");
  cli.option("--hidden", o->spec.network.hidden, "channels of it");
  cli.option("--width", o->spec.network.width, "channels of a step of a recipe");
  cli.option("--inner", o->spec.network.inner, "channels where circuit and recipe meet");
  cli.option("--epochs", o->spec.epochs, "over the samples to train on");
  cli.option("--batch", o->spec.batch, "samples of a step");
  cli.option("--folds", o->folds, "which of 0 to 4 are held out in turn, a list");
  cli.option("--seed", o->spec.seed, "of weights and batches");
  cli.option("-t,--threads", o->threads, "0: one per core; times are of one");
  cli.option("--csv FILE", o->csv, "write the scores of every design");
  cli.option("--svg FILE", o->svg, "write a plot of the regret");
  cli.flag("--quick", o->quick, "one fold, two epochs, few channels");
  cli.flag("--json", o->json, "print one JSON object");
  return [o] { return repro_eda(*o); };
}

}  // namespace braid::apps
