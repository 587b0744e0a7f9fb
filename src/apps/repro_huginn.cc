// braid repro huginn: does a model that repeats its layers think deeper with more steps? Small models learn to follow
// a permutation for 1 to 8 hops: one with recurrent depth, trained with 8 steps on average, and two of fixed depth with
// as many parameters, or as many layers as it runs. Then the accuracy by hops over the steps, what early exits save,
// and whether drafts of few steps leave the text as it was.
//   Huginn (arXiv 2502.05171)
#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/commands.h"
#include "apps/huginn_study.h"
#include "apps/model_args.h"
#include "apps/study.h"
#include "io/atomic_file.h"
#include "report/curve.h"
#include "report/table.h"
#include "sys/interrupt.h"

namespace braid::apps {
namespace {
namespace fs = std::filesystem;
using nlohmann::ordered_json;
using report::Align;

struct ReproHuginnArgs {
  HuginnStudy study;
  bool json = false;
};

constexpr HuginnArm kLoop{"recurrent depth", 0};
constexpr HuginnArm kFixed[] = {{"3 layers, as many parameters", 3}, {"10 layers, as many run", 10}};
constexpr int64_t kSteps[] = {1, 2, 4, 8, 16, 32, 64};
constexpr int64_t kExitSteps = 32, kDraftSteps = 4;
constexpr std::pair<const char*, engine::Exit> kExitRules[] = {{"off", engine::Exit::never},
                                                               {"kl", engine::Exit::kl},
                                                               {"latent", engine::Exit::latent},
                                                               {"entropy", engine::Exit::entropy},
                                                               {"argmax", engine::Exit::argmax}};

struct Row {
  std::string model;
  int64_t steps = 0;
  HopCounts counts{};
};
struct Outcome {
  std::vector<Row> depths{}, exits{};  // exits: by rule, in the order of kExitRules
  DraftedText drafts{};
};

// None when a signal stopped it.
std::optional<Outcome> measure(const HuginnStudy& study) {
  Outcome r;
  for (const HuginnArm& arm : kFixed) {
    if (!train_arm(study, arm)) return std::nullopt;
    r.depths.push_back({arm.name, 0, count_right(study, arm, 0)});
  }
  if (!train_arm(study, kLoop)) return std::nullopt;
  for (const int64_t steps : kSteps) r.depths.push_back({kLoop.name, steps, count_right(study, kLoop, steps)});
  for (const auto& [name, exit] : kExitRules)
    r.exits.push_back({name, kExitSteps, count_right(study, kLoop, kExitSteps, exit)});
  r.drafts = draft_texts(study, kLoop, kExitSteps, kDraftSteps);
  return sys::caught_signal() == 0 ? std::optional(std::move(r)) : std::nullopt;
}

std::string name_of(const Row& row) {
  return row.steps == 0 ? row.model : fmt::format("{}, {} step{}", row.model, row.steps, row.steps == 1 ? "" : "s");
}

void write_files(const HuginnStudy& o, const Outcome& r) {
  std::string csv = "model,steps,hops,right,asked\n";
  report::Curve curve{.title = "right answers by hops, over the steps of the loop (measured)",
                      .x_label = "steps; trained with 8 on average",
                      .y_label = "share",
                      .log_x = true};
  for (int64_t hops = 1; hops <= kHopsMost; ++hops) {
    const auto i = static_cast<size_t>(hops - 1);
    report::Series series{.label = fmt::format("{} hop{}", hops, hops == 1 ? "" : "s"), .points = {}};
    for (const Row& row : r.depths) {
      csv += fmt::format("\"{}\",{},{},{},{}\n", row.model, row.steps, hops, row.counts.right[i], row.counts.asked[i]);
      if (row.steps > 0) series.points.emplace_back(row.steps, row.counts.accuracy(hops));
    }
    curve.series.push_back(std::move(series));
  }
  io::write_text_file(fs::path(o.dir) / "huginn.csv", csv);
  io::write_text_file(fs::path(o.dir) / "huginn.svg", report::svg(curve));
}

void print_tables(const HuginnStudy& o, const Outcome& r) {
  std::vector<report::Column> columns = {{"right after so many hops, %"}};
  for (int64_t hops = 1; hops <= kHopsMost; ++hops) columns.push_back({std::to_string(hops), Align::right});
  columns.push_back({"all", Align::right});
  report::Table depths(std::move(columns));
  for (const Row& row : r.depths) {
    std::vector<std::string> cells = {name_of(row)};
    for (int64_t hops = 1; hops <= kHopsMost; ++hops)
      cells.push_back(fmt::format("{:.0f}", 100 * row.counts.accuracy(hops)));
    cells.push_back(fmt::format("{:.1f}", 100 * row.counts.accuracy()));
    depths.row(std::move(cells));
  }
  report::Table exits({{"exit"}, {"steps of a question", Align::right}, {"right, %", Align::right}});
  for (const Row& row : r.exits)
    exits.row({row.model, fmt::format("{:.1f}", row.counts.steps), fmt::format("{:.1f}", 100 * row.counts.accuracy())});
  fmt::print(
      "{}\n{} steps of training each, {} held-out rows of 16 questions, one seed.\n\n{}\nOf at most {} steps.\n\n",
      depths.markdown(), o.steps, o.rows, exits.markdown(), kExitSteps);
  fmt::print("drafts of {} steps, verified with {}: {} of {} texts are the same, {:.0f}% of the drafts were accepted\n",
             kDraftSteps, kExitSteps, r.drafts.same, r.drafts.texts, 100 * r.drafts.accepted);
  fmt::print(
      "Huginn (quoted): 3.5B parameters that with more steps answer like models of up to 50B parameters' "
      "computation\n");
  fmt::print("written to {}: huginn.csv and huginn.svg\n", printable(o.dir));
}

ordered_json json_of(const HuginnStudy& o, const Outcome& r) {
  ordered_json j = {{"training_steps", o.steps}, {"rows", o.rows}, {"seeds", 1}};
  for (const Row& row : r.depths)
    j["depths"].push_back({{"model", row.model},
                           {"steps", row.steps},
                           {"accuracy", row.counts.accuracy()},
                           {"right", row.counts.right},
                           {"asked", row.counts.asked}});
  for (const Row& row : r.exits)
    j["exits"].push_back({{"exit", row.model}, {"steps", row.counts.steps}, {"accuracy", row.counts.accuracy()}});
  j["drafts"] = {
      {"steps", kDraftSteps}, {"texts", r.drafts.texts}, {"same", r.drafts.same}, {"accepted", r.drafts.accepted}};
  return j;
}

int repro_huginn(const ReproHuginnArgs& o) {
  check_range("--steps", o.study.steps, 1, 1000000);
  check_range("--rows", o.study.rows, 4, 1000000);
  check_range("--threads", o.study.threads, 0, 1024);
  begin_study(o.study.dir);
  const std::optional<Outcome> r = measure(o.study);
  if (!r) return 128 + sys::caught_signal();
  write_files(o.study, *r);
  if (o.json)
    fmt::print("{}\n", json_of(o.study, *r).dump());
  else
    print_tables(o.study, *r);
  return 0;
}

}  // namespace

Action setup_repro_huginn(Cli& cli) {
  auto o = std::make_shared<ReproHuginnArgs>();
  cli.option("--dir FOLDER", o->study.dir, "a new one, for models, huginn.csv and huginn.svg");
  cli.option("--steps", o->study.steps,
             "of training of each model, 2,016 tokens each; 3,000 take about ten minutes a model");
  cli.option("--rows", o->study.rows, "held-out rows of 16 questions, 4 or more");
  cli.option("-t,--threads", o->study.threads, "0: one per core");
  cli.flag("--json", o->json, "print one JSON object");
  return [o] { return repro_huginn(*o); };
}

}  // namespace braid::apps
