// braid prune: a smaller model from a model, channels, heads, experts and layers of the least importance left out; or
// with --pattern (prune_pattern.h) the same model with zeros.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/commands.h"
#include "apps/model_args.h"
#include "apps/prune_pattern.h"
#include "data/read_text.h"
#include "models/presets.h"
#include "prune/prune.h"
#include "report/progress.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/error.h"
#include "sys/interrupt.h"
#include "sys/parallel.h"

namespace braid::apps {
namespace {

using nlohmann::ordered_json;

struct PruneArgs {
  std::string model, out, data, kind, target, score;
  prune::Options prune;
  PatternArgs pattern;
  int64_t seed = 0, threads = 0;
  bool json = false;
};

// As prune::ScoreKind has them, then of single weights, as prune::WeightScore does.
const std::vector<std::string> kScores = {"minitron", "reap", "taylor", "random", "magnitude", "activations"};
constexpr int64_t kUnitScores = 4;

// "ffn 192, layers 9": what differs from the whole.
std::string text_of(const prune::Sizes& sizes, const char* none) {
  std::string text;
  for (size_t i = 0; i < prune::kAxes; ++i) {
    const auto axis = static_cast<prune::Axis>(i);
    if (sizes[axis] > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name_of(axis), sizes[axis]);
  }
  return text.empty() ? none : text;
}

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
    tried.row({text_of(c.sizes, "nothing"), report::count(static_cast<double>(c.cost.params)),
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

ordered_json sizes_of(const prune::Sizes& sizes, const prune::Sizes& full) {
  ordered_json j = ordered_json::object();
  for (size_t i = 0; i < prune::kAxes; ++i) {
    const auto axis = static_cast<prune::Axis>(i);
    if (full[axis] > 0) j[name_of(axis)] = sizes[axis] > 0 ? sizes[axis] : full[axis];
  }
  return j;
}

ordered_json json_of(const prune::Candidate& c, const prune::Sizes& full) {
  return {{"params", c.cost.params}, {"active", c.cost.active}, {"bytes", c.bytes},
          {"tokens_s", c.tokens_s},  {"loss", c.loss},          {"sizes", sizes_of(c.sizes, full)}};
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
                          {"score", kScores[static_cast<size_t>(o.prune.score)]},
                          {"samples", r.samples},
                          {"tokens", r.tokens},
                          {"before", json_of(r.parent, r.parent_loss, r.full)},
                          {"after", json_of(r.child, r.child_loss, r.full)},
                          {"single", std::move(single)},
                          {"tried", std::move(tried)}};
  fmt::print("{}\n", j.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
}

void check(PruneArgs& o) {
  if (o.data.empty()) fail("prune", {.what = "there is no data to calibrate with", .hint = "--data FILE"});
  const bool zeros = !o.pattern.pattern.empty();
  if (zeros && !o.target.empty())
    fail("--pattern", {.what = "and --target cannot be used together", .hint = "one of the two"});
  if (zeros && !o.prune.axes.empty()) fail("--axes", {.what = "does not go with --pattern", .hint = "leaving it out"});
  if (!zeros && o.target.empty())
    fail("prune", {.what = "no target is given", .hint = "--target params=0.75, or --pattern shfl-bw --density 0.5"});
  if (!zeros) {
    refuse_pattern_options(o.pattern);
    o.prune.target = prune::parse_target(o.target);
  }
  check_range("--samples", o.prune.samples, 1, 1 << 20);
  check_range("--length", o.prune.length, 2, 1 << 17);
  check_range("--quick", o.prune.quick, 1, 1 << 20);
  check_range("--candidates", o.prune.candidates, 1, 1024);
  check_range("--threads", o.threads, 0, 1024);
  for (const auto& [flag, share] :
       {std::pair("--min-width", o.prune.floors.width), std::pair("--min-depth", o.prune.floors.depth)}) {
    if (!(share > 0 && share <= 1))
      fail(flag, {.what = "is out of range", .got = fmt::format("{}", share), .expected = "above 0, up to 1"});
  }
  o.prune.threads = o.threads > 0 ? static_cast<int>(o.threads) : sys::default_threads();
  o.prune.seed = static_cast<uint64_t>(o.seed);
  if (o.score.empty()) o.score = zeros ? "activations" : "minitron";
  const int64_t score = std::find(kScores.begin(), kScores.end(), o.score) - kScores.begin();
  if ((score >= kUnitScores) != zeros)
    fail("--score", {.what = fmt::format("does not go with {}", zeros ? "--pattern" : "--target"),
                     .got = o.score,
                     .expected = zeros ? "magnitude or activations" : "minitron, reap, taylor or random"});
  if (!zeros) o.prune.score = static_cast<prune::ScoreKind>(score);
}

bool prune_to_pattern(PruneArgs& o, const data::DataSpec& data, const prune::Stage& stage,
                      std::optional<report::Progress>& progress) {
  prune::SparseOptions options{
      .spec = o.pattern.spec(),
      .score = o.score == "magnitude" ? prune::WeightScore::magnitude : prune::WeightScore::activations,
      .samples = o.prune.samples,
      .threads = o.prune.threads};
  options.spec.seed = o.prune.seed;
  options.spec.threads = o.prune.threads;
  const prune::SparseReport report = prune::sparsify_model(models::find_weights(o.model), data, o.out, options, stage);
  progress.reset();
  o.pattern.model = o.model;
  o.pattern.out = o.out;
  o.pattern.json = o.json;
  if (report.whole) print_sparse(o.pattern, o.score, report);
  return report.whole;
}

int prune_command(PruneArgs o) {
  check(o);
  data::DataSpec data{.kind = o.kind, .path = o.data, .batch = 1, .length = o.prune.length, .seed = o.prune.seed};
  if ((o.kind.empty() ? data::kind_of(o.data) : o.kind) == "ids") data.batch = data.length = 0;  // as they are stored
  sys::catch_requests_to_stop();
  std::optional<report::Progress> progress;
  std::string current;
  const auto stage = [&](const char* name, int64_t done, int64_t total) {
    if (current != name) progress.emplace(current = name, total);
    progress->at(done);
    return sys::caught_signal() == 0;
  };
  if (!o.pattern.pattern.empty()) return prune_to_pattern(o, data, stage, progress) ? 0 : 128 + sys::caught_signal();
  const prune::Report report = prune::prune_model(models::find_weights(o.model), data, o.out, o.prune, stage);
  progress.reset();
  if (!report.whole) return 128 + sys::caught_signal();
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
  cli.option("--data F", o->data, "calibration data: text, JSON lines, or token ids, as braid train reads them");
  cli.choice("--kind", o->kind, data::kKinds, "of the data; default: guessed from the path");
  cli.option("--target", o->target,
             "params=0.75 (a share, or a number), active=.., gib=4 or 75%, or tok_s=200 or 1.3x, measured");
  o->pattern.declare(cli);
  cli.option("--axes", o->prune.axes,
             "what may be cut: hidden, ffn, heads, kv_groups, mamba_heads, mamba_head_dim, experts, expert_ffn, "
             "shared_ffn, latent, layers; default: all that the model has");
  cli.choice(
      "--score", o->score, kScores,
      "importance: activations (reap: experts over the tokens that chose them), gradients times weights, or none; "
      "with --pattern magnitude, or activations: times the norms of inputs");
  cli.option("--samples", o->prune.samples, "rows of data that are read");
  cli.option("--length", o->prune.length, "tokens of a row");
  cli.option("--quick", o->prune.quick, "rows on which candidates are compared");
  cli.option("--candidates", o->prune.candidates, "combinations of cuts whose loss is measured");
  cli.option("--min-width", o->prune.floors.width, "the least share of an axis that stays");
  cli.option("--min-depth", o->prune.floors.depth, "the least share of the layers that stays");
  cli.option("--seed", o->seed, "of the order of the data, and of --score random");
  cli.option("-t,--threads", o->threads, "0: one per core");
  cli.flag("--json", o->json, "print one JSON object");
  return [o] { return prune_command(*o); };
}

}  // namespace braid::apps
