// braid search: one variant for every block of a model, of the least score within limits of cost (puzzle/search.h), or
// of a given instance alone (compress/choice.h).
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/cut_args.h"
#include "apps/model_args.h"
#include "apps/result.h"
#include "apps/search_report.h"
#include "compress/choice.h"
#include "data/read_text.h"
#include "io/json.h"
#include "io/toml.h"
#include "models/presets.h"
#include "puzzle/search.h"
#include "report/units.h"
#include "sys/error.h"
#include "sys/interrupt.h"
#include "sys/parallel.h"

namespace braid::apps {
namespace {

struct SearchArgs {
  std::string instance, model, out, data, kind, variants, limits, score = "kl";
  puzzle::Options puzzle;
  int64_t seed = 0, threads = 0;
  bool json = false;
  const Cli* cli = nullptr;
};

const std::vector<std::string> kMetrics = {"kl", "loss", "cosine"};

// Options that an instance has no use for.
constexpr const char* kOfModels[] = {"data",           "kind",       "limit",   "variants", "score",
                                     "distill-tokens", "distill-lr", "samples", "held",     "row",
                                     "batch",          "length",     "rounds",  "seed",     "threads"};

std::string text_of(const compress::Instance& instance, const compress::Choice& choice,
                    const std::vector<double>& costs) {
  std::string text = fmt::format("choice {}\nscore  {:.9g}", fmt::join(choice.variants, " "), choice.score);
  if (choice.bound == choice.score)
    text += ", proven to be the least\n";
  else
    text += fmt::format(", at most {:.3g} above the least: bound {:.9g}\n", choice.score - choice.bound, choice.bound);
  for (size_t k = 0; k < costs.size(); ++k)
    text += fmt::format("cost   {:.9g} of limits[{}] = {:.9g}\n", costs[k], k, instance.limits[k]);
  text.pop_back();  // print_result ends the line
  return text;
}

int solve(const SearchArgs& o) {
  constexpr const char* kExpected = R"({"layers": [[{"score": 1, "cost": [2]}, ...], ...], "limits": [8]})";
  if (std::error_code none; !std::filesystem::exists(o.instance, none))
    fail("--solve", {.what = "no such file", .got = printable(o.instance), .expected = kExpected});
  const io::Json json = io::Json::read(o.instance);
  if (!json.get({"limits"}) || !json.get({"layers"}))
    fail(json.document(), {.what = "is not an instance", .expected = kExpected});
  const compress::Instance instance = compress::read_instance(json);
  const compress::Choice choice = compress::choose(instance, json.document());
  const std::vector<double> costs = compress::costs_of(instance, choice.variants);
  print_result(o.json, {{"choice", choice.variants}, {"score", choice.score}, {"bound", choice.bound}, {"cost", costs}},
               text_of(instance, choice, costs));
  return 0;
}

void check(SearchArgs& o) {
  puzzle::Options& p = o.puzzle;
  if (o.out.empty()) fail("search", {.what = "no output folder is named", .hint = "braid search MODEL OUT"});
  if (o.data.empty()) fail("search", {.what = "there is no data to judge by", .hint = "--data FILE"});
  if (o.limits.empty()) fail("search", {.what = "no limit is given", .hint = "--limit gib=75%"});
  p.limits = puzzle::parse_limits(o.limits);
  check_range("--samples", p.samples, 1, 1 << 20);
  check_range("--held", p.held, 1, 1 << 16);
  check_range("--row", p.row, 2, 1 << 17);
  check_range("--batch", p.times.batch, 1, 1024);
  check_range("--length", p.times.length, 1, 1 << 20);
  check_range("--rounds", p.times.rounds, 1, 10000);
  check_range("--distill-tokens", p.distill.tokens, 0, int64_t{1} << 40);
  check_range("--threads", o.threads, 0, 1024);
  check_range("--seed", o.seed, 0, INT64_MAX);
  if (!(p.distill.lr > 0 && p.distill.lr <= 1))
    fail("--distill-lr",
         {.what = "is out of range", .got = fmt::format("{}", p.distill.lr), .expected = "above 0, up to 1"});
  if (!o.variants.empty())
    p.lists =
        puzzle::read_lists(o.variants.ends_with(".json") ? io::Json::read(o.variants) : io::read_toml(o.variants));
  p.times.threads = p.distill.threads = o.threads > 0 ? static_cast<int>(o.threads) : sys::default_threads();
  p.seed = static_cast<uint64_t>(o.seed);
  std::filesystem::path out = std::filesystem::absolute(o.out).lexically_normal();  // OUT may be "."
  if (!out.has_filename()) out = out.parent_path();
  p.work = out.string() + ".search";
  p.metric = static_cast<puzzle::Metric>(std::find(kMetrics.begin(), kMetrics.end(), o.score) - kMetrics.begin());
}

int search_command(SearchArgs o) {
  if (!o.instance.empty()) {
    if (!o.model.empty())
      fail("--solve", {.what = "takes an instance alone", .got = printable(o.model), .hint = "one of both"});
    for (const char* word : kOfModels) {
      if (typed(*o.cli, word))
        fail("--solve", {.what = "takes an instance alone", .got = fmt::format("--{}", word), .hint = "one of both"});
    }
    return solve(o);
  }
  if (o.model.empty())
    fail("search", {.what = "no model is named", .hint = "braid search MODEL OUT, or --solve INSTANCE.json"});
  check(o);
  const data::DataSpec data = rows_of(o.data, o.kind, o.puzzle.row, o.puzzle.seed);
  sys::catch_requests_to_stop();
  sys::end_at_second_interrupt();
  Stages stages;
  const puzzle::Report report =
      puzzle::search_model(models::find_weights(o.model), data, o.out, o.puzzle, std::ref(stages));
  stages.end();
  if (!report.whole) {
    std::fputs("stopped; the same command goes on\n", stderr);
    return 128 + sys::caught_signal();
  }
  if (report.reused > 0) fmt::print(stderr, "{} of an earlier search\n", report::counted(report.reused, "variant"));
  if (o.json)
    print_search_json(report, o.model, o.out, o.score);
  else
    print_search(report, o.out, o.score);
  return 0;
}

}  // namespace

Action setup_search(Cli& cli) {
  auto o = std::make_shared<SearchArgs>();
  o->cli = &cli;
  puzzle::Options& p = o->puzzle;
  cli.positional("model", o->model, "a folder, org/name of the Hugging Face cache, or tiny", false);
  cli.positional("out", o->out, "the folder to create", false);
  cli.option("--data F", o->data, "text, JSON lines, or token ids, as braid train reads them");
  cli.choice("--kind", o->kind, data::kKinds, "of the data; default: guessed from the path");
  cli.option("--limit", o->limits,
             "gib=0.5 or 75%, kv=.., params=.., decode_ms=12, prefill_ms=..; several with commas");
  cli.option("--variants FILE", o->variants,
             "TOML or JSON: ffn = [0.75, 0.5, \"none\"], kv_groups = [0.5], keep = [0]; default: some of each kind");
  cli.choice("--score", o->score, kMetrics, "what the model loses with one block replaced");
  cli.option("--distill-tokens", p.distill.tokens, "tokens of local distillation for each variant; 0: none");
  cli.option("--distill-lr", p.distill.lr, "the highest learning rate of that");
  cli.option("--samples", p.samples, "rows of data that variants are cut by and trained on");
  cli.option("--held", p.held, "rows held out, which score the variants");
  cli.option("--row", p.row, "tokens of a row");
  cli.option("-b,--batch", p.times.batch, "sequences of a timed step");
  cli.option("--length", p.times.length, "tokens that each has read, and of a timed prompt");
  cli.option("--rounds", p.times.rounds, "rounds, each of which times every variant once");
  cli.option("--seed", o->seed, "of the order of the data");
  cli.option("-t,--threads", o->threads, "0: one per core");
  cli.option("--solve INSTANCE.json", o->instance,
             "alone: {\"layers\": [[{\"score\": 0.1, \"cost\": [2, 3]}, ...], ...], \"limits\": [80, 90]}, up to 8");
  cli.flag("--json", o->json, "print one JSON object: every variant, and the instance that --solve takes");
  return [o] { return search_command(*o); };
}

}  // namespace braid::apps
