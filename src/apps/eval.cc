// braid eval: perplexity and bits per byte of a text, or the accuracy of answers to tasks.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "apps/commands.h"
#include "apps/default_context.h"
#include "apps/eval_graph.h"
#include "apps/eval_tasks.h"
#include "apps/model_args.h"
#include "apps/ranks_args.h"
#include "apps/scored_lines.h"
#include "engine/language_model.h"
#include "eval/divergence.h"
#include "eval/perplexity.h"
#include "io/ordered_json.h"
#include "report/progress.h"
#include "report/units.h"
#include "sys/error.h"
#include "sys/interrupt.h"
#include "sys/read.h"

namespace braid::apps {
namespace {

constexpr int64_t kWindow = 512;

struct EvalArgs {
  ModelArgs model{.activations = "bf16"};  // measures the error of weights alone
  std::string text, lines, base, graph, predictions;
  RanksArgs ranks;
  int64_t stride = 0;
  bool json = false;
  TaskArgs tasks;
  const Cli* cli = nullptr;
};

std::string read_text(const std::string& path) {
  if (path.empty()) fail("eval", {.what = "there is nothing to read", .hint = "--text, --jsonl or --tasks FILE"});
  std::string text = sys::read_file(path);
  if (text.empty())
    fail(printable(path), {.what = "has no text", .got = "an empty file", .expected = "text to predict"});
  return text;
}

// What is scored: tokens, the windows that are read, and what every window begins with instead of its first token.
struct Reading {
  std::vector<int32_t> ids{};
  std::vector<eval::Window> windows{};
  std::optional<int32_t> bos{};
};

Reading read_whole(const EvalArgs& o, const std::string& text, const text::Tokenizer& tokenizer) {
  Reading r{.ids = tokenizer.encode(text, false)};
  if (const std::vector<int32_t>& opening = tokenizer.opening(); !opening.empty()) r.bos = opening[0];
  r.windows = eval::plan_windows(std::ssize(r.ids), o.model.context, o.stride);
  return r;
}

// A line is a window of its own.
Reading read_lines(const EvalArgs& o, int64_t vocab) {
  Reading r;
  const std::vector<ScoredLine> lines = read_scored_lines("eval", o.model.model, o.lines);
  check_ids(lines, vocab);
  for (const ScoredLine& line : lines) {
    const int64_t begin = std::ssize(r.ids), count = std::ssize(line.item.ids);
    if (count > o.model.context) {
      fail(line.where, {.what = "longer than the context",
                        .got = fmt::format("{} tokens", count),
                        .expected = fmt::format("at most {}", o.model.context),
                        .hint = "a larger -c"});
    }
    r.ids.insert(r.ids.end(), line.item.ids.begin(), line.item.ids.end());
    if (line.item.first < count) r.windows.push_back({begin, begin + count, begin + line.item.first});
  }
  if (r.windows.empty())
    fail(printable(o.lines), {.what = "has no token to predict", .expected = "a completion that is not empty"});
  return r;
}

void print(const EvalArgs& o, const eval::Perplexity& p, int64_t bytes, int64_t windows) {
  const double bits = p.loss / std::log(2.0) / static_cast<double>(std::max<int64_t>(1, bytes));
  if (o.json) {
    const nlohmann::ordered_json j = {{"model", o.model.model}, {"perplexity", p.value()}, {"error", p.error()},
                                      {"loss", p.mean()},       {"bits_per_byte", bits},   {"tokens", p.tokens},
                                      {"bytes", bytes},         {"windows", windows},      {"window", o.model.context},
                                      {"stride", o.stride}};
    return fmt::print("{}\n", io::dumped(j));
  }
  fmt::print("perplexity     {:.4f} +- {:.4f}\nbits per byte  {:.4f}\nscored         {} tokens, {} bytes, {} of {}\n",
             p.value(), p.error(), bits, p.tokens, bytes, report::counted(windows, "window"), o.model.context);
}

void print(const EvalArgs& o, const eval::Divergence& d) {
  if (o.json) {
    const nlohmann::ordered_json j = {{"model", o.model.model},
                                      {"base", o.base},
                                      {"perplexity", d.model.value()},
                                      {"base_perplexity", d.base.value()},
                                      {"ratio", d.ratio()},
                                      {"ratio_error", d.ratio_error},
                                      {"kl", d.mean_kl()},
                                      {"kl_error", d.kl_error()},
                                      {"kl_median", d.kl_at(0.5)},
                                      {"kl_99", d.kl_at(0.99)},
                                      {"kl_max", d.kl_at(1)},
                                      {"same_top", d.same_top_share()},
                                      {"tokens", d.model.tokens},
                                      {"window", o.model.context},
                                      {"stride", o.stride}};
    fmt::print("{}\n", io::dumped(j));
    return;
  }
  fmt::print(
      "perplexity      {:.4f} +- {:.4f}, of the base {:.4f} +- {:.4f}\nratio           {:.5f} +- {:.5f}\n"
      "KL divergence   {:.6f} +- {:.6f}, median {:.6f}, 99% {:.5f}, largest {:.4f}\nsame top token  {:.3f}%\n"
      "scored          {} tokens in windows of {}\n",
      d.model.value(), d.model.error(), d.base.value(), d.base.error(), d.ratio(), d.ratio_error, d.mean_kl(),
      d.kl_error(), d.kl_at(0.5), d.kl_at(0.99), d.kl_at(1), 100 * d.same_top_share(), d.model.tokens, o.model.context);
}

// Both models must have the same vocabulary to be compared.
void check_same_tokens(engine::LanguageModel& base, engine::LanguageModel& lm, const EvalArgs& o,
                       const std::string& text, const Reading& r) {
  const bool same = o.lines.empty() ? base.tokenizer().encode(text, false) == r.ids
                                    : base.runner().config().vocab == lm.runner().config().vocab &&
                                          base.tokenizer().decode(r.ids, false) == lm.tokenizer().decode(r.ids, false);
  if (same) return;
  fail("--kl", {.what = "the base cuts the text into other tokens",
                .got = printable(o.base),
                .expected = "the model that this one was made from"});
}

// Refuses options of tasks with a text, and of a text with tasks. Variables may be set for other commands.
void refuse_stray_options(const EvalArgs& o) {
  constexpr const char *kTasks[] = {"answers",          "slots", "mtp", "predict", "draft", "draft-max", "draft-model",
                                    "reasoning-budget", "think"},
                       *kText[] = {"stride"};
  const bool tasks = !o.tasks.file.empty();
  for (const char* name : tasks ? std::span<const char* const>(kText) : std::span<const char* const>(kTasks)) {
    if (typed(*o.cli, name))
      fail(fmt::format("--{}", name),
           {.what = "does not fit the input", .expected = tasks ? "--text FILE" : "--tasks FILE"});
  }
}

void check(const EvalArgs& o) {
  refuse_stray_options(o);
  const int inputs = !o.text.empty() + !o.lines.empty() + !o.tasks.file.empty();
  if (inputs > 1) fail("eval", {.what = "several inputs are given", .expected = "one of --text, --jsonl and --tasks"});
  if (!o.tasks.file.empty() && !o.base.empty())
    fail("--kl", {.what = "compares on a text", .got = "--tasks", .expected = "--text FILE or --jsonl FILE"});
  if (!o.lines.empty() && o.stride != 0)
    fail("--stride", {.what = "applies only to --text", .got = "--jsonl", .expected = "--text FILE"});
  const int64_t context = o.model.context == 0 ? kWindow : o.model.context;
  if (!o.tasks.file.empty()) return;
  if (context < 4)
    fail("--ctx-size", {.what = "is too short for a window",
                        .got = std::to_string(context),
                        .expected = "4 tokens or more, or 0 for 512"});
  if (o.stride < 0 || o.stride >= context)
    fail("--stride", {.what = "out of range",
                      .got = std::to_string(o.stride),
                      .expected = fmt::format("0 to {}, below the window of {} tokens", context - 1, context)});
}

int eval_command(EvalArgs o) {
  check(o);
  if (!o.tasks.file.empty()) return eval_tasks(o.model, o.tasks, o.json);
  if (o.model.context == 0) o.model.context = default_context(o.model.model, kWindow);
  // A state is rounded where a pass ends: in passes of many tokens the rounding of an answer's steps would not show.
  if (o.model.runner_options().numerics.ssm != DType::f32 && !o.cli->given("chunk")) o.model.chunk = 1;
  const std::string text = o.lines.empty() ? read_text(o.text) : "";
  engine::LanguageModel lm = o.model.open(o.model.runner_options());
  need_tokenizer(lm.path(), "");
  const Reading r = o.lines.empty() ? read_whole(o, text, lm.tokenizer()) : read_lines(o, lm.runner().config().vocab);
  std::optional<engine::LanguageModel> base;
  if (!o.base.empty()) {
    engine::RunnerOptions options = o.model.runner_options();
    options.adapter.clear();  // what differs from the base is to show
    options.numerics.kv.reset();
    options.numerics.int8 = false;
    options.numerics.ssm = DType::f32;
    base.emplace(o.base, options);
    need_tokenizer(base->path(), "");
    check_same_tokens(*base, lm, o, text, r);
  }
  int64_t total = 0;
  for (const eval::Window& w : r.windows) total += w.end - w.begin;

  sys::catch_interrupts();
  report::Progress progress("reading", total);
  const auto on_read = [&](int64_t done) {
    progress.at(done);
    return !lm.runner().interrupted();
  };
  if (base) {
    const eval::Divergence result = eval::divergence(lm.runner(), base->runner(), r.ids, r.windows, r.bos, on_read);
    progress.wipe();
    if (!lm.runner().interrupted()) print(o, result);
  } else {
    const eval::Perplexity result = eval::perplexity(lm.runner(), r.ids, r.windows, r.bos, on_read);
    progress.wipe();
    if (!lm.runner().interrupted())
      print(o, result, eval::scored_bytes(lm.tokenizer(), r.ids, r.windows), std::ssize(r.windows));
  }
  return lm.runner().interrupted() ? 130 : 0;
}

}  // namespace

Action setup_eval(Cli& cli) {
  auto o = std::make_shared<EvalArgs>();
  o->cli = &cli;
  cli.positional("model", o->model.model, "a folder, a GGUF file, org/name of the Hugging Face cache, or tiny", false);
  cli.option("--text FILE", o->text, "the text to predict");
  cli.option("--jsonl F", o->lines, "or lines as of braid score: of completions alone");
  cli.option("--kl BASE", o->base,
             "against the model that this was made from: KL divergence, perplexities, agreement of top tokens");
  cli.option("--tasks FILE", o->tasks.file, "tasks to answer, JSON lines of task, messages, answers, tools");
  cli.choice("--think", o->tasks.think, {"on", "off"}, "of tasks: reasoning, if the model has it");
  cli.option("--reasoning-budget", o->tasks.budget, "of tasks: tokens of thinking at most; -1: no limit");
  cli.flag("--mtp", o->tasks.drafts, "of tasks: count right drafts of the prediction block");
  cli.option("-n,--predict", o->tasks.tokens, "of tasks: tokens of one answer at most");
  cli.option("--slots", o->tasks.slots, "of tasks: answers at a time");
  o->tasks.speculation.declare(cli);
  cli.option("--answers FILE", o->tasks.answers, "of tasks: file for the answers, as JSON lines");
  cli.option("-c,--ctx-size", o->model.context,
             "tokens of a window, read from an empty state; without a stride windows are adjacent and the "
             "second half of each is scored, as llama-perplexity; 0: 512");
  cli.option("--stride", o->stride, "windows N apart, whose last N are scored; 0: off");
  cli.option("--adapter FOLDER", o->model.adapter, "a LoRA adapter as PEFT and braid train write it");
  o->model.declare_types(cli);
  cli.option("--chunk", o->model.chunk, "tokens of a pass; 1 if SSM states are rounded");
  cli.option("-t,--threads", o->model.threads, "0: one per core");
  cli.option("--graph FILE", o->graph, "another graph for a graph network");
  cli.option("--predictions FILE", o->predictions, "a graph network's classes or scores, as CSV");
  cli.flag("--json", o->json, "print one JSON object");
  cli.rare();
  o->ranks.declare(cli);
  return [o] {
    if (evals_graph(o->model.model, *o->cli))
      return eval_graph({o->model.model, o->graph, o->predictions, o->model.threads, o->json});
    const auto models = o->base.empty() ? std::vector{o->model.model} : std::vector{o->model.model, o->base};
    return o->ranks.start(o->model, *o->cli, models, [o] { return eval_command(*o); });
  };
}

}  // namespace braid::apps
