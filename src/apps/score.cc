// braid score: log-probabilities of given tokens by the training pass, by prefill or step by step; a line of JSON in, a
// line of JSON out.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "apps/commands.h"
#include "apps/model_args.h"
#include "apps/scored_lines.h"
#include "engine/score.h"
#include "report/progress.h"
#include "sys/error.h"
#include "sys/interrupt.h"

namespace braid::apps {
namespace {

struct ScoreArgs {
  ModelArgs model{.activations = "bf16"};
  std::string jsonl, path = "prefill";
  int64_t batch = 1;
  bool json = false;
};

engine::ScorePath path_of(const std::string& word) {
  return word == "train"  ? engine::ScorePath::train
         : word == "step" ? engine::ScorePath::step
                          : engine::ScorePath::prefill;
}

// The last token of a line predicts nothing that is asked for, so it needs no room in the context.
int64_t read_of(const ScoredLine& line) { return std::max<int64_t>(1, std::ssize(line.item.ids) - 1); }

int64_t longest(const std::vector<ScoredLine>& lines, int64_t context) {
  int64_t most = 1;
  for (const ScoredLine& line : lines) {
    most = std::max(most, read_of(line));
    if (context > 0 && most > context) {
      fail(line.where, {.what = "longer than the context",
                        .got = fmt::format("{} tokens", line.item.ids.size()),
                        .expected = fmt::format("at most {}", context + 1),
                        .hint = "a larger -c, where the model allows it, or a shorter line"});
    }
  }
  return most;
}

std::string list_of(const std::vector<float>& values) { return fmt::format("[{}]", fmt::join(values, ",")); }

void print(const std::vector<std::vector<float>>& results) {
  for (const std::vector<float>& values : results) fmt::print("{{\"logprobs\":{}}}\n", list_of(values));
  std::fflush(stdout);
}

int score_command(const ScoreArgs& o) {
  check_range("--batch", o.batch, 1, 1024);
  engine::RunnerOptions options = o.model.runner_options();
  const engine::ScorePath path = path_of(o.path);
  if (path == engine::ScorePath::train && options.numerics.int8)
    fail("--activations", {.what = "--path train rounds none", .got = o.model.activations, .expected = "bf16"});
  if (path == engine::ScorePath::train && options.numerics.kv)
    fail("--kv-cache-dtype", {.what = "--path train has no cache", .got = o.model.kv, .expected = "auto"});
  if (path == engine::ScorePath::train && options.numerics.ssm != DType::f32)
    fail("--mamba-ssm-cache-dtype", {.what = "--path train has no cache", .got = o.model.ssm, .expected = "f32"});
  const std::vector<ScoredLine> lines = read_scored_lines("score", o.model.model, o.jsonl);
  options.context = std::max(longest(lines, options.context), int64_t{1});
  options.sequences = path == engine::ScorePath::train ? 1 : std::min<int64_t>(o.batch, std::ssize(lines));
  engine::LanguageModel lm = o.model.open(options);
  check_ids(lines, lm.runner().config().vocab);

  sys::catch_interrupts();
  report::Progress progress("scoring", std::ssize(lines));
  std::vector<engine::ScoreItem> items;
  std::vector<std::string> lists;  // for --json
  for (size_t begin = 0; begin < lines.size(); begin += items.size()) {
    items.clear();
    for (size_t i = begin; i < lines.size() && std::ssize(items) < o.batch; ++i) items.push_back(lines[i].item);
    const std::vector<std::vector<float>> results = engine::score(lm.runner(), items, path);
    progress.wipe();
    if (o.json)
      std::ranges::transform(results, std::back_inserter(lists), list_of);
    else
      print(results);
    progress.at(static_cast<int64_t>(begin + items.size()));
    if (sys::interrupted()) return 130;
  }
  if (o.json) {
    progress.wipe();
    fmt::print("{{\"logprobs\":[{}]}}\n", fmt::join(lists, ","));
  }
  return 0;
}

}  // namespace

Action setup_score(Cli& cli) {
  auto o = std::make_shared<ScoreArgs>();
  o->model.declare(cli);
  cli.option("--jsonl F", o->jsonl,
             "lines {\"ids\": [1, 2]} or {\"prompt\": \"\", \"completion\": \"\"}; - is standard input. Each becomes "
             "a line {\"logprobs\": []}: natural logarithms, of the ids after the first or of the completion");
  cli.flag("--json", o->json, "print one JSON object: the logprobs of all lines");
  cli.choice("--path", o->path, {"train", "prefill", "step"},
             "the forward pass of training, passes through the caches, or one token at a time; with --exact all are "
             "the same numbers");
  cli.option("--batch N", o->batch, "lines computed together");
  return [o] { return score_command(*o); };
}

}  // namespace braid::apps
