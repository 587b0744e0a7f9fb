// braid prune: a smaller model from a model, channels, heads, experts and layers of the least importance left out; or
// with --pattern (prune_pattern.h) the same model with zeros.
#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/commands.h"
#include "apps/cut_args.h"
#include "apps/prune_pattern.h"
#include "io/ordered_json.h"
#include "models/presets.h"
#include "prune/prune.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/error.h"
#include "sys/interrupt.h"

namespace braid::apps {
namespace {

using nlohmann::ordered_json;

struct PruneArgs {
  std::string model, out, target, router_bias = "keep";
  CutArgs cut;
  PatternArgs pattern;
  bool json = false;
};

std::string gib(int64_t bytes) { return fmt::format("{:.4g}", static_cast<double>(bytes) / (1024.0 * 1024 * 1024)); }

void print_models(const prune::Report& r) {
  using report::Align;
  report::Table table({{""},
                       {"parameters", Align::right},
                       {"active", Align::right},
                       {"GiB", Align::right},
                       {"state", Align::right},
                       {"KV/token", Align::right},
                       {"tokens/s", Align::right},
                       {"loss", Align::right}});
  const auto row = [&](const char* name, const prune::Shown& s, double loss) {
    const prune::Candidate& c = s.candidate;
    table.row({name, report::count(static_cast<double>(c.cost.params)),
               report::count(static_cast<double>(c.cost.active)), gib(c.bytes), report::bytes(s.state_bytes),
               report::bytes(s.kv_bytes), fmt::format("{:.1f}", c.tokens_s), fmt::format("{:.4f}", loss)});
  };
  row("before", r.parent, r.parent_loss);
  row("after", r.child, r.child_loss);
  fmt::print("{}\n", table.plain());
}

void print_text(const PruneArgs& o, const prune::Report& r) {
  using report::Align;
  report::Table axes({{"axis"}, {"before", Align::right}, {"after", Align::right}});
  const prune::Sizes& sizes = r.child.candidate.sizes;
  for (const prune::AxisRange& a : r.cut)
    axes.row({name_of(a.axis), std::to_string(a.full), std::to_string(sizes[a.axis] > 0 ? sizes[a.axis] : a.full)});
  report::Table tried({{"tried"},
                       {"parameters", Align::right},
                       {"active", Align::right},
                       {"tokens/s", Align::right},
                       {"loss", Align::right}});
  for (const prune::Candidate& c : r.found.tried) {
    tried.row({sizes_text(c.sizes, r.full, "nothing"), report::count(static_cast<double>(c.cost.params)),
               report::count(static_cast<double>(c.cost.active)), fmt::format("{:.1f}", c.tokens_s),
               fmt::format("{:.4f}", c.loss)});
  }
  fmt::print("{}\n{}\n", tried.plain(), axes.plain());
  print_models(r);
  fmt::print("{}: {}% of the parameters, measured on {} of {} tokens; the loss is before any training\n",
             printable(o.out),
             fmt::format("{:.1f}", 100 * static_cast<double>(r.child.candidate.cost.params) /
                                       static_cast<double>(r.parent.candidate.cost.params)),
             report::counted(r.samples, "sample"), r.tokens);
}

ordered_json json_of(const prune::Candidate& c, const prune::Sizes& full) {
  return {{"params", c.cost.params}, {"active", c.cost.active}, {"bytes", c.bytes},
          {"tokens_s", c.tokens_s},  {"loss", c.loss},          {"sizes", sizes_json(c.sizes, full)}};
}

ordered_json json_of(const prune::Shown& s, double loss, const prune::Sizes& full) {
  ordered_json j = json_of(s.candidate, full);
  j["state_bytes"] = s.state_bytes;
  j["kv_bytes_per_token"] = s.kv_bytes;
  j["loss"] = loss;
  return j;
}

void print_json(const PruneArgs& o, const prune::Report& r) {
  ordered_json tried = ordered_json::array(), single = ordered_json::array();
  for (const prune::Candidate& c : r.found.tried) {
    tried.push_back(json_of(c, r.full));
    tried.back()["predicted"] = c.predicted;
  }
  for (const prune::SingleCut& c : r.found.single)
    single.push_back({{"axis", name_of(c.axis)}, {"size", c.size}, {"loss", c.loss}});
  const ordered_json j = {{"model", o.model},
                          {"output", o.out},
                          {"target", o.target},
                          {"score", o.cut.score},
                          {"samples", r.samples},
                          {"tokens", r.tokens},
                          {"before", json_of(r.parent, r.parent_loss, r.full)},
                          {"after", json_of(r.child, r.child_loss, r.full)},
                          {"single", std::move(single)},
                          {"tried", std::move(tried)}};
  fmt::print("{}\n", io::dumped(j));
}

void check(PruneArgs& o) {
  const bool zeros = !o.pattern.pattern.empty();
  if (zeros && !o.target.empty())
    fail("--pattern", {.what = "and --target cannot be used together", .hint = "one of the two"});
  if (zeros && o.router_bias != "keep")
    fail("--router-bias", {.what = "does not go with --pattern", .hint = "leaving it out"});
  if (zeros && !o.cut.prune.axes.empty())
    fail("--axes", {.what = "does not go with --pattern", .hint = "leaving it out"});
  const prune::Options usual;
  const std::pair<bool, const char*> of_search[] = {{o.cut.prune.quick != usual.quick, "--quick"},
                                                    {o.cut.prune.candidates != usual.candidates, "--candidates"},
                                                    {o.cut.prune.floors.width != usual.floors.width, "--min-width"},
                                                    {o.cut.prune.floors.depth != usual.floors.depth, "--min-depth"}};
  for (const auto& [set, flag] : of_search) {
    if (zeros && set) fail(flag, {.what = "does not go with --pattern", .hint = "leaving it out"});
  }
  o.cut.check("prune", zeros);
  if (zeros) return;
  if (o.target.empty())
    fail("prune", {.what = "no target is given", .hint = "--target params=0.75, or --pattern shfl-bw --density 0.5"});
  refuse_pattern_options(o.pattern);
  o.cut.prune.target = prune::parse_target(o.target);
  o.cut.prune.reset_router_bias = o.router_bias == "reset";
}

// Whether it was not stopped.
bool prune_to_pattern(const PruneArgs& o, Stages& stages) {
  prune::SparseOptions options{
      .spec = o.pattern.spec(),
      .score = o.cut.score == "magnitude" ? prune::WeightScore::magnitude : prune::WeightScore::activations,
      .samples = o.cut.prune.samples,
      .threads = o.cut.prune.threads};
  options.spec.seed = o.cut.prune.seed;
  options.spec.threads = o.cut.prune.threads;
  const prune::SparseReport report =
      prune::sparsify_model(models::find_weights(o.model), o.cut.spec(), o.out, options, std::ref(stages));
  stages.end();
  if (report.whole)
    print_sparse(o.pattern, {.model = o.model, .out = o.out, .score = o.cut.score, .json = o.json}, report);
  return report.whole;
}

int prune_command(PruneArgs o) {
  check(o);
  sys::catch_requests_to_stop();
  sys::end_at_second_interrupt();
  Stages stages;
  if (!o.pattern.pattern.empty()) return prune_to_pattern(o, stages) ? 0 : stopped(o.out);
  const prune::Report report =
      prune::prune_model(models::find_weights(o.model), o.cut.spec(), o.out, o.cut.prune, std::ref(stages));
  stages.end();
  if (!report.whole) return stopped(o.out);
  if (o.json)
    print_json(o, report);
  else
    print_text(o, report);
  return 0;
}

}  // namespace

Action setup_prune(Cli& cli) {
  auto o = std::make_shared<PruneArgs>();
  cli.positional("model", o->model, "a folder, org/name of the Hugging Face cache, or tiny");
  cli.positional("out", o->out, "the folder to create");
  cli.option("--target", o->target,
             "params=0.75 (a share, or a number), active=.., gib=4 or 75%, or tok_s=200 or 1.3x, measured");
  o->pattern.declare(cli);
  o->cut.declare(cli, true);
  cli.flag("--json", o->json, "print one JSON object");
  cli.rare();
  cli.choice("--router-bias", o->router_bias, {"keep", "reset"},
             "of routers that lose experts: what they had, or zeros, from which training balances the others");
  return [o] { return prune_command(*o); };
}

}  // namespace braid::apps
