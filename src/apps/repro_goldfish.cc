// braid repro goldfish: does leaving out one target in k keep a model from memorising? A corpus of documents from a
// source of known entropy has canaries, documents of the same source that are repeated. Models are trained on it with
// and without the goldfish loss and continue each canary from its first half. Every model is trained on as many
// targets: what is left out is made up for by more documents, of which the canaries stay as many.
//   https://arxiv.org/abs/2406.10209; canaries as in 2502.08145
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/goldfish_study.h"
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

struct GoldfishArgs {
  GoldfishStudy study;
  bool json = false;
};

constexpr GoldfishArm kArms[] = {{"every target", 0},
                                 {"k = 8", 8},
                                 {"k = 4", 4},
                                 {"k = 3", 3},
                                 {"k = 4 by place", 4, true},
                                 {"no canaries", 0, false, false}};
void write_files(const GoldfishArgs& o, const std::vector<GoldfishOutcome>& outcomes) {
  std::string csv = "arm,k,exact_match,rouge_l,unseen_rouge_l,held_out_loss\n";
  report::Curve curve{
      .title = "recall of canaries (measured)", .x_label = "share of targets left out", .y_label = "share"};
  curve.series = {{"exact match", {}}, {"ROUGE-L", {}}, {"ROUGE-L of unseen documents", {}}};
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const GoldfishArm& arm = kArms[i];
    const GoldfishOutcome& r = outcomes[i];
    csv +=
        fmt::format("{},{},{:.4f},{:.4f},{:.4f},{:.4f}\n", arm.name, arm.k, r.exact, r.rouge, r.unseen_rouge, r.loss);
    if (arm.by_position || !arm.canaries) continue;
    const double x = arm.k > 0 ? 1 / static_cast<double>(arm.k) : 0;
    curve.series[0].points.emplace_back(x, r.exact);
    curve.series[1].points.emplace_back(x, r.rouge);
    curve.series[2].points.emplace_back(x, r.unseen_rouge);
  }
  io::write_text_file(fs::path(o.study.dir) / "goldfish.csv", csv);
  io::write_text_file(fs::path(o.study.dir) / "goldfish.svg", report::svg(curve));
}

void print_outcomes(const GoldfishArgs& o, const std::vector<GoldfishOutcome>& outcomes) {
  using report::Align;
  report::Table table({{"trained on"},
                       {"exact match", Align::right},
                       {"ROUGE-L", Align::right},
                       {"of unseen", Align::right},
                       {"held-out loss", Align::right}});
  ordered_json rows = ordered_json::array();
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const GoldfishOutcome& r = outcomes[i];
    table.row({kArms[i].name, fmt::format("{:.1f}%", 100 * r.exact), fmt::format("{:.3f}", r.rouge),
               fmt::format("{:.3f}", r.unseen_rouge), fmt::format("{:.4f}", r.loss)});
    rows.push_back({{"arm", kArms[i].name},
                    {"k", kArms[i].k},
                    {"exact_match", r.exact},
                    {"rouge_l", r.rouge},
                    {"unseen_rouge_l", r.unseen_rouge},
                    {"held_out_loss", r.loss}});
  }
  if (o.json) {
    fmt::print("{}\n", ordered_json{{"canaries", o.study.canaries},
                                    {"repeats", o.study.repeats},
                                    {"background", o.study.background},
                                    {"length", o.study.length},
                                    {"rows", rows}}
                           .dump());
    return;
  }
  fmt::print(
      "{} canaries of {} tokens, {} times each among {} other documents or more; continued from their first halves\n{}",
      o.study.canaries, o.study.length, o.study.repeats, o.study.background, table.plain());
  fmt::print("written to {}: goldfish.csv and goldfish.svg\n", o.study.dir);
}

int repro_goldfish(const GoldfishArgs& o) {
  check_range("--canaries", o.study.canaries, 1, 10000);
  check_range("--repeats", o.study.repeats, 1, 10000);
  check_range("--background", o.study.background, 1, 1000000);
  check_range("--length", o.study.length, 8, 128);
  check_range("--threads", o.study.threads, 0, 1024);
  begin_study(o.study.dir);
  write_held_out(o.study);
  std::vector<GoldfishOutcome> outcomes;
  for (const GoldfishArm& arm : kArms) {
    outcomes.push_back(train_arm(o.study, arm));
    if (sys::caught_signal() != 0) return 128 + sys::caught_signal();
  }
  write_files(o, outcomes);
  print_outcomes(o, outcomes);
  return 0;
}

}  // namespace

Action setup_repro_goldfish(Cli& cli) {
  auto o = std::make_shared<GoldfishArgs>();
  cli.option("--dir FOLDER", o->study.dir, "a new one, for corpora, runs, goldfish.csv and goldfish.svg");
  cli.option("--canaries", o->study.canaries, "documents that are repeated");
  cli.option("--repeats", o->study.repeats, "times that each is in the corpus");
  cli.option("--background", o->study.background, "documents that are not repeated, at least");
  cli.option("--length", o->study.length, "tokens of a document");
  cli.option("-t,--threads", o->study.threads, "0: one per core");
  cli.flag("--json", o->json, "print one JSON object");
  return [o] { return repro_goldfish(*o); };
}

}  // namespace braid::apps
