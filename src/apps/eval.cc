// braid eval: perplexity and bits per byte of a text, or the accuracy of answers to tasks.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "apps/commands.h"
#include "apps/eval_tasks.h"
#include "apps/model_args.h"
#include "engine/language_model.h"
#include "eval/divergence.h"
#include "eval/perplexity.h"
#include "report/progress.h"
#include "sys/error.h"
#include "sys/interrupt.h"
#include "sys/read.h"

namespace braid::apps {
namespace {

constexpr int64_t kWindow = 512;

struct Options {
  ModelArgs model;
  std::string text, base;
  int64_t stride = 0;
  bool json = false;
  TaskArgs tasks;
};

std::string read_text(const std::string& path) {
  if (path.empty()) fail("eval", {.what = "there is no text to read", .hint = "--text FILE"});
  std::string text = sys::read_file(path);
  if (text.empty()) fail(printable(path), {.what = "has no text"});
  return text;
}

// Bytes of text that the scored tokens stand for. A token that ends inside a character counts none of it, the one that
// completes it all.
int64_t bytes_of(const text::Tokenizer& tokenizer, std::span<const int32_t> ids,
                 std::span<const eval::Window> windows) {
  text::StreamDecoder decoder(tokenizer, true);
  std::vector<int64_t> before = {0};  // bytes before token i
  for (int32_t id : ids) before.push_back(before.back() + std::ssize(decoder.push(id)));
  before.back() += std::ssize(decoder.finish());
  int64_t bytes = 0;
  for (const eval::Window& w : windows)
    bytes += before[static_cast<size_t>(w.end)] - before[static_cast<size_t>(w.first)];
  return bytes;
}

void print(const Options& o, const eval::Perplexity& p, int64_t bytes, int64_t windows) {
  const double bits = p.loss / std::log(2.0) / static_cast<double>(std::max<int64_t>(1, bytes));
  if (o.json) {
    const nlohmann::ordered_json j = {{"model", o.model.model}, {"perplexity", p.value()}, {"error", p.error()},
                                      {"loss", p.mean()},       {"bits_per_byte", bits},   {"tokens", p.tokens},
                                      {"bytes", bytes},         {"windows", windows},      {"window", o.model.context},
                                      {"stride", o.stride}};
    fmt::print("{}\n", j.dump());
    return;
  }
  fmt::print(
      "perplexity     {:.4f} +- {:.4f}\nbits per byte  {:.4f}\nscored         {} tokens, {} bytes, {} windows of {}\n",
      p.value(), p.error(), bits, p.tokens, bytes, windows, o.model.context);
}

void print(const Options& o, const eval::Divergence& d) {
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
    fmt::print("{}\n", j.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    return;
  }
  fmt::print(
      "perplexity      {:.4f} +- {:.4f}, of the base {:.4f} +- {:.4f}\nratio           {:.5f} +- {:.5f}\n"
      "KL divergence   {:.6f} +- {:.6f}, median {:.6f}, 99% {:.5f}, largest {:.4f}\nsame top token  {:.3f}%\n"
      "scored          {} tokens in windows of {}\n",
      d.model.value(), d.model.error(), d.base.value(), d.base.error(), d.ratio(), d.ratio_error, d.mean_kl(),
      d.kl_error(), d.kl_at(0.5), d.kl_at(0.99), d.kl_at(1), 100 * d.same_top_share(), d.model.tokens, o.model.context);
}

// Both models must mean the same by a token, or there is nothing to compare.
void check_same_tokens(engine::LanguageModel& base, const Options& o, const std::string& text,
                       const std::vector<int32_t>& ids) {
  if (base.tokenizer().encode(text, false) == ids) return;
  fail("--kl", {.what = "the base cuts the text into other tokens",
                .got = printable(o.base),
                .expected = "the model that this one was made from"});
}

int eval_command(Options o) {
  if (!o.tasks.file.empty() && !o.text.empty())
    fail("eval", {.what = "both --text and --tasks are given", .expected = "one of them"});
  if (!o.tasks.file.empty() && !o.base.empty())
    fail("--kl", {.what = "compares on a text", .got = "--tasks", .expected = "--text FILE"});
  if (!o.tasks.file.empty()) return eval_tasks(o.model, o.tasks, o.json);
  if (o.model.context == 0) o.model.context = kWindow;
  if (o.model.context < 4 || o.stride < 0 || o.stride >= o.model.context) {
    fail("eval", {.what = "no such windows",
                  .got = fmt::format("-c {} --stride {}", o.model.context, o.stride),
                  .expected = "a window of at least 4 tokens and a stride below it"});
  }
  const std::string text = read_text(o.text);
  engine::LanguageModel lm(o.model.model, o.model.runner_options());
  const std::vector<int32_t> ids = lm.tokenizer().encode(text, false);
  std::optional<engine::LanguageModel> base;
  if (!o.base.empty()) {
    engine::RunnerOptions options = o.model.runner_options();
    options.numerics.kv.reset();  // what differs from the base is to show
    base.emplace(o.base, options);
    check_same_tokens(*base, o, text, ids);
  }
  const std::vector<int32_t> around = lm.tokenizer().encode("", true);
  const auto bos = around.empty() ? std::nullopt : std::optional(around[0]);
  const auto windows = eval::plan_windows(std::ssize(ids), o.model.context, o.stride);
  int64_t total = 0;
  for (const eval::Window& w : windows) total += w.end - w.begin;

  sys::catch_interrupts();
  report::Progress progress("reading", total);
  const auto on_read = [&](int64_t done) {
    progress.at(done);
    return !sys::interrupted();
  };
  if (base) {
    const eval::Divergence result = eval::divergence(lm.runner(), base->runner(), ids, windows, bos, on_read);
    if (!sys::interrupted()) print(o, result);
  } else {
    const eval::Perplexity result = eval::perplexity(lm.runner(), ids, windows, bos, on_read);
    if (!sys::interrupted()) print(o, result, bytes_of(lm.tokenizer(), ids, windows), std::ssize(windows));
  }
  return sys::interrupted() ? 130 : 0;
}

}  // namespace

Action setup_eval(Cli& cli) {
  auto o = std::make_shared<Options>();
  cli.positional("model", o->model.model, "a folder, a GGUF file, org/name of the Hugging Face cache, or tiny", false);
  cli.option("--text FILE", o->text, "the text to predict");
  cli.option("--kl BASE", o->base,
             "compare with the model that this one was made from: KL divergence, perplexities, same likeliest tokens");
  cli.option("--tasks FILE", o->tasks.file,
             "tasks to answer, one JSON object per line: task, messages, answers, tools");
  cli.choice("--think", o->tasks.think, {"on", "off"}, "of tasks: reasoning, where the model has it");
  cli.option("-n,--predict", o->tasks.tokens, "of tasks: tokens of one answer at most");
  cli.option("--slots", o->tasks.slots, "of tasks: answers at a time");
  cli.option("--answers FILE", o->tasks.answers, "of tasks: where every answer is written, a line of JSON each");
  cli.option("-c,--ctx-size", o->model.context,
             "tokens of a window, each read from an empty state; without a stride windows lie side by side and the "
             "second half of each is scored, as llama-perplexity does; 0: 512");
  cli.option("--stride", o->stride,
             "windows this many tokens apart, the last so many of each scored: every token counts once; 0: off");
  cli.option("--adapter FOLDER", o->model.adapter, "a LoRA adapter as PEFT and braid train write it");
  cli.choice("--dtype", o->model.dtype, {"f32", "bf16"}, "numbers that products read");
  o->model.declare_cache(cli);
  cli.option("--chunk", o->model.chunk, "tokens of one pass");
  cli.option("-t,--threads", o->model.threads, "0: one per core");
  cli.flag("--json", o->json, "print one JSON object");
  return [o] { return eval_command(*o); };
}

}  // namespace braid::apps
