// braid bench: how fast a model reads a prompt and generates, as llama-bench prints it, with the floor: what
// bytes and operations allow on this machine, whose roofs are measured in the same run.
#include <algorithm>

#include "apps/bench_drafts.h"
#include "apps/bench_report.h"
#include "apps/bench_runs.h"
#include "apps/bench_tune.h"
#include "apps/commands.h"
#include "apps/model_args.h"
#include "apps/ranks_args.h"
#include "models/load.h"
#include "models/presets.h"
#include "plan/floor.h"
#include "sys/error.h"
#include "sys/machine.h"

namespace braid::apps {
namespace {

struct BenchArgs {
  ModelArgs model;
  RanksArgs ranks;
  std::vector<int64_t> prompt = {512}, generate = {128}, depth = {0}, batch = {1};
  std::string output = "md";
  Repeats repeats;
  bool list = false, explain = false, tune = false, json = false;
  int64_t train_tokens = 0;
  std::vector<int64_t> drafts = {};
  std::string draft_model;
  const Cli* cli = nullptr;
};

// What a way of running leaves unread must not pass in silence.
void check_read(const BenchArgs& o) {
  const auto refuse = [&](const char* beside, std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (typed(*o.cli, name)) refuse_unread(beside, {{("--" + std::string(name)).c_str(), true}});
    }
  };
  if (o.list)
    refuse("--list", {"n-prompt", "n-gen", "n-depth", "batch", "output", "json", "progress", "repetitions", "drafts",
                      "draft-model", "ctx-size", "dtype", "kv-cache-dtype", "exact", "threads"});
  if (o.tune)
    refuse("--tune", {"list", "explain", "n-prompt", "n-gen", "n-depth", "batch", "output", "progress", "drafts",
                      "draft-model", "ctx-size", "chunk", "kv-cache-dtype", "mamba-ssm-cache-dtype"});
  if (!o.tune && o.train_tokens != 0)
    fail("--train-tokens", {.what = "is read by --tune alone", .hint = "--tune, or leaving it out"});
  if (o.explain)
    refuse("--explain", {"list", "n-prompt", "n-gen", "batch", "repetitions", "progress", "drafts", "draft-model"});
}

std::vector<BenchRow> plan_rows(const BenchArgs& o) {
  const auto check = [](const char* flag, const std::vector<int64_t>& values, int64_t low, int64_t high) {
    for (const int64_t value : values) check_range(flag, value, low, high);
  };
  check("--n-prompt", o.prompt, 0, 1 << 24);
  check("--n-gen", o.generate, 0, 1 << 24);
  check("--n-depth", o.depth, 0, 1 << 24);
  check("--batch", o.batch, 1, 4096);
  std::vector<BenchRow> rows;
  for (int64_t depth : o.depth) {
    for (int64_t batch : o.batch) {
      for (int64_t n : o.prompt) {
        if (n > 0) rows.push_back({.prompt = n, .depth = depth, .sequences = batch});
      }
      for (int64_t n : o.generate) {
        if (n > 0) rows.push_back({.generate = n, .depth = depth, .sequences = batch});
      }
    }
  }
  if (rows.empty()) fail("bench", {.what = "nothing to measure", .hint = "-p 512 -n 128"});
  return rows;
}

// One token is explained, with one number of tokens before it.
std::vector<BenchRow> explained_row(const BenchArgs& o) {
  if (o.depth.size() != 1)
    fail("--n-depth", {.what = "is a list, and --explain takes one value",
                       .got = fmt::format("{}", fmt::join(o.depth, ",")),
                       .expected = "one number"});
  check_range("--n-depth", o.depth[0], 0, 1 << 24);
  return {{.generate = 1, .depth = o.depth[0]}};
}

int64_t tokens_of(const BenchRow& r) {
  return r.prompt > 0 ? r.depth + r.prompt : std::max<int64_t>(r.depth, 1) + r.generate;
}

// Before the model is loaded: tests that need more positions than it has; a note of those beyond its training.
void check_positions(const BenchArgs& o, const std::vector<BenchRow>& rows) {
  const models::Config config = models::load_config(models::find_weights(o.model.model));
  const int64_t limit = config.positions_limit(), trained = config.positions_max;
  const auto longest = std::ranges::max_element(rows, {}, tokens_of);
  const bool drafts = !o.drafts.empty() || !o.draft_model.empty();
  const int64_t tokens = tokens_of(*longest) + (drafts ? rows[0].prompt : 0);  // with drafts an answer follows
  if (limit > 0 && tokens > limit) {
    const bool reads = longest->prompt > 0;
    const int64_t room = limit - (reads ? longest->depth : std::max<int64_t>(longest->depth, 1));
    fail(room <= 0 ? "--n-depth"
         : reads   ? "--n-prompt"
                   : "--n-gen",
         {.what = "longer than the model allows",
          .got = fmt::format("{}, which takes {} tokens", longest->test(), tokens),
          .expected = fmt::format("at most {} (max_position_embeddings)", limit),
          .hint = room <= 0 ? "a smaller -d"
                  : drafts  ? "a smaller -p or -n"
                            : fmt::format("{} {}", reads ? "-p" : "-n", room)});
  }
  if (trained > 0 && tokens > trained && !(o.model.ranks && !o.model.ranks->first()))
    fmt::print(stderr, "note: {} is beyond the {} tokens that this model is for: times hold, answers would not\n",
               longest->test(), trained);
}

// Drafts are measured at one length and one number of sequences, in an empty context.
void check_drafts(const BenchArgs& o) {
  for (const int64_t percent : o.drafts) check_range("--drafts", percent, 0, 100);
  const char* by = o.drafts.empty() ? "--draft-model" : "--drafts";
  const std::pair<const char*, const std::vector<int64_t>*> lists[] = {
      {"--n-prompt", &o.prompt}, {"--n-gen", &o.generate}, {"--batch", &o.batch}};
  for (const auto& [flag, list] : lists) {
    if (list->size() > 1)
      fail(flag, {.what = fmt::format("is a list, and {} takes one value", by),
                  .got = fmt::format("{}", fmt::join(*list, ",")),
                  .expected = "one number"});
  }
  if (o.depth != std::vector<int64_t>{0})
    fail("--n-depth", {.what = fmt::format("does not apply to {}", by),
                       .got = fmt::format("{}", fmt::join(o.depth, ",")),
                       .expected = "0",
                       .hint = "a longer -p"});
  check_range("--n-gen", o.generate[0], 2, 1 << 24);  // the first token is the prompt's
}

int tune(const BenchArgs& o) {
  if (o.model.ranks) fail("--tune", {.what = "is supported on one rank only", .hint = "no --tp, --pp and --ep"});
  engine::RunnerOptions options = o.model.runner_options();
  options.context = 1;
  engine::LanguageModel lm = o.model.open(options);
  return bench_tune(lm, static_cast<int>(o.repeats.count), o.train_tokens, o.json);
}

int bench(const BenchArgs& o) {
  check_read(o);
  if (o.list) return print_ops();
  check_range("--repetitions", o.repeats.count, 1, 1000);
  if (o.train_tokens != 0) check_range("--train-tokens", o.train_tokens, 1, 1 << 20);
  if (o.tune) return tune(o);
  std::vector<BenchRow> rows = o.explain ? explained_row(o) : plan_rows(o);
  check_positions(o, rows);
  if (!o.drafts.empty() || !o.draft_model.empty()) check_drafts(o);
  if (o.model.ranks && (o.explain || !o.drafts.empty() || !o.draft_model.empty()))
    fail(o.explain          ? "--explain"
         : o.drafts.empty() ? "--draft-model"
                            : "--drafts",
         {.what = "is supported on one rank only", .hint = "no --tp, --pp and --ep"});
  engine::RunnerOptions options = o.model.runner_options();
  for (const BenchRow& r : rows) {
    options.sequences = std::max(options.sequences, r.sequences);
    options.context = std::max(options.context, tokens_of(r));
  }
  options.beyond_training = true;
  if (!o.drafts.empty() || !o.draft_model.empty()) options.context += rows[0].prompt, options.spare_slots = o.batch[0];
  if (o.model.context > 0 && options.context > o.model.context)
    fail("--ctx-size", {.what = "is too small for these tests",
                        .got = std::to_string(o.model.context),
                        .expected = fmt::format("at least {}, or 0 for what they need", options.context)});
  std::optional<engine::DraftModel> draft;
  if (!o.draft_model.empty()) draft = engine::load_draft_model(o.draft_model, options);
  if (const int cores = sys::machine().cores; o.model.threads > cores)
    fmt::print(stderr, "note: {} threads share {} cores: they wait for each other\n", o.model.threads, cores);
  engine::LanguageModel lm = o.model.open(options);
  if (draft) engine::check_same_tokens(lm, *draft);
  BenchReport report(o.json ? "json" : o.output, lm);
  if (o.explain) {
    report.explain(
        plan::work_of(lm.runner().model(), {.depth = rows[0].depth, .caches = lm.runner().options().numerics.caches()}),
        rows[0].depth);
    return 0;
  }
  if (!o.drafts.empty() || draft)
    return bench_drafts(lm.runner(), {.percent = o.drafts,
                                      .prompt = rows[0].prompt,
                                      .generate = o.generate[0],
                                      .sequences = o.batch[0],
                                      .repetitions = o.repeats.count,
                                      .model = draft ? draft->runner.get() : nullptr});
  std::optional<sys::ReadRate> memory;
  if (!o.model.ranks) {
    sys::roofs(lm.runner().ctx().threads);  // before the buffer below: it allocates one of that size, and frees it
    memory.emplace();
  }
  for (BenchRow& row : rows) {
    measure(lm.runner(), row, memory ? &*memory : nullptr, o.repeats);
    report.add(row);
  }
  report.finish();
  return 0;
}

}  // namespace

Action setup_bench(Cli& cli) {
  auto o = std::make_shared<BenchArgs>();
  o->cli = &cli;
  o->model.declare(cli);
  cli.option("-p,--n-prompt", o->prompt, "prompt tokens, a list; 0: none");
  cli.option("-n,--n-gen", o->generate, "tokens to generate, a list; 0: none");
  cli.option("-d,--n-depth", o->depth, "tokens already in the context, a list; beyond a few hundred, copies of them");
  cli.option("-b,--batch", o->batch, "sequences per pass, a list");
  cli.option("-r,--repetitions", o->repeats.count, "runs after a warm-up");
  cli.choice("-o,--output", o->output, {"md", "json", "jsonl"}, "output format");
  cli.flag("--json", o->json, "the same as -o json");
  cli.flag("--progress", o->repeats.lines, "a line for each run as it ends, in place of the bar; run 0 is the warm-up");
  cli.option(
      "--drafts", o->drafts,
      "only generate, without drafts and with simulated ones, at these acceptance rates in percent, a list: a line of "
      "JSON for each");
  cli.option("--draft-model FOLDER", o->draft_model, "the same with the drafts of a smaller model");
  cli.flag("--list", o->list, "only print the ops, their variants and thresholds");
  cli.flag("--tune", o->tune, "only measure the thresholds, and write them as this machine's profile");
  cli.option("--train-tokens N", o->train_tokens, "with --tune: also the blocking of training products of N tokens");
  cli.flag("--explain", o->explain, "only print the bytes and operations of one generated token, by tensor");
  cli.rare();
  o->ranks.declare(cli);
  return [o, &cli] { return o->ranks.start(o->model, cli, {o->model.model}, [o] { return bench(*o); }); };
}

}  // namespace braid::apps
