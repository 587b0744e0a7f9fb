// braid nest: a model whose prefixes are smaller models; braid slice: one of these as a folder (prune/nest.h).
#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/cut_args.h"
#include "io/ordered_json.h"
#include "models/presets.h"
#include "prune/nest.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/error.h"
#include "sys/interrupt.h"

namespace braid::apps {
namespace {

using nlohmann::ordered_json;

const std::vector<std::string> kMeasures = {"params", "active"};

struct NestArgs {
  std::string model, out, budgets = "1,0.75,0.5", measure = "params";
  CutArgs cut;
  bool json = false;
};

struct SliceArgs {
  std::string model, out, budget;
  bool json = false;
};

void print_text(const NestArgs& o, const prune::NestReport& r) {
  using report::Align;
  report::Table table(
      {{"budget"}, {"parameters", Align::right}, {"active", Align::right}, {"loss", Align::right}, {"sizes"}});
  for (const prune::NestedModel& m : r.models) {
    table.row({m.budget.name, report::count(static_cast<double>(m.cost.params)),
               report::count(static_cast<double>(m.cost.active)), fmt::format("{:.4f}", m.loss),
               sizes_text(m.budget.sizes, r.full, "all")});
  }
  fmt::print(
      "{}\n{}: loss {:.6f}, before its units were reordered {:.6f}; measured on {} of {} tokens, before any training\n",
      table.plain(), printable(o.out), r.nested_loss, r.parent_loss, report::counted(r.samples, "sample"), r.tokens);
}

void print_json(const NestArgs& o, const prune::NestReport& r) {
  ordered_json models = ordered_json::array();
  for (const prune::NestedModel& m : r.models) {
    models.push_back({{"name", m.budget.name},
                      {"share", m.budget.share},
                      {"params", m.cost.params},
                      {"active", m.cost.active},
                      {"loss", m.loss},
                      {"sizes", sizes_json(m.budget.sizes, r.full)},
                      {"layers", m.budget.layers}});
  }
  const ordered_json j = {{"model", o.model},
                          {"output", o.out},
                          {"measure", o.measure},
                          {"score", o.cut.score},
                          {"samples", r.samples},
                          {"tokens", r.tokens},
                          {"loss", r.parent_loss},
                          {"nested_loss", r.nested_loss},
                          {"budgets", std::move(models)}};
  fmt::print("{}\n", io::dumped(j));
}

int nest_command(NestArgs o) {
  o.cut.check("nest");
  const prune::NestOptions options{.prune = o.cut.prune,
                                   .budgets = prune::parse_budgets(o.budgets),
                                   .measure = o.measure == "active" ? prune::Measure::active : prune::Measure::params};
  sys::catch_requests_to_stop();
  sys::end_at_second_interrupt();
  Stages stages;
  const prune::NestReport report =
      prune::nest_model(models::find_weights(o.model), o.cut.spec(), o.out, options, std::ref(stages));
  stages.end();
  if (!report.whole) return stopped(o.out);
  if (o.json)
    print_json(o, report);
  else
    print_text(o, report);
  return 0;
}

int slice_command(const SliceArgs& o) {
  if (o.budget.empty()) fail("slice", {.what = "no budget is given", .hint = "--budget 0.75"});
  sys::catch_requests_to_stop();
  sys::end_at_second_interrupt();
  Stages stages;
  const prune::SliceReport r = prune::slice_model(models::find_weights(o.model), o.budget, o.out, std::ref(stages));
  stages.end();
  if (!r.whole) return 128 + sys::caught_signal();
  if (o.json) {
    const ordered_json j = {{"model", o.model},
                            {"output", o.out},
                            {"budget", r.budget.name},
                            {"params", r.cost.params},
                            {"active", r.cost.active},
                            {"bytes", r.bytes},
                            {"sizes", sizes_json(r.budget.sizes, r.full)},
                            {"layers", r.budget.layers}};
    fmt::print("{}\n", io::dumped(j));
  } else {
    fmt::print("{}: budget {}, {} parameters ({} active), {}\n", printable(o.out), printable(r.budget.name),
               report::count(static_cast<double>(r.cost.params)), report::count(static_cast<double>(r.cost.active)),
               sizes_text(r.budget.sizes, r.full, "all"));
  }
  return 0;
}

}  // namespace

Action setup_nest(Cli& cli) {
  auto o = std::make_shared<NestArgs>();
  cli.positional("model", o->model, "a folder, org/name of the Hugging Face cache, or tiny");
  cli.positional("out", o->out, "the folder to create");
  cli.option("--budgets", o->budgets, "shares of the whole that smaller models have; small=0.5 gives one a name");
  cli.choice("--measure", o->measure, kMeasures, "what they are shares of");
  o->cut.declare(cli);
  cli.flag("--json", o->json, "print one JSON object");
  return [o] { return nest_command(*o); };
}

Action setup_slice(Cli& cli) {
  auto o = std::make_shared<SliceArgs>();
  cli.positional("model", o->model, "a nested folder, or a folder, org/name of the Hugging Face cache, or tiny");
  cli.positional("out", o->out, "the folder to create");
  cli.option("--budget", o->budget, "its name, or its share of the whole");
  cli.flag("--json", o->json, "print one JSON object");
  return [o] { return slice_command(*o); };
}

}  // namespace braid::apps
