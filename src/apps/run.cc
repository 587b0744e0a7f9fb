// braid run: one prompt, one answer; and dumps of logits, hidden states, recurrent states and routes. As in chat, the
// answer goes to standard output and thinking to standard error.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "apps/answer_printer.h"
#include "apps/commands.h"
#include "apps/dumps.h"
#include "apps/model_args.h"
#include "engine/generate.h"
#include "engine/reasoning.h"
#include "io/npy.h"
#include "sys/error.h"
#include "sys/interrupt.h"
#include "text/gguf_vocabulary.h"

namespace braid::apps {
namespace {

struct Options {
  ModelArgs model;
  SamplingArgs sampling;
  std::string prompt, chat, file, ids_file, think;
  std::vector<int64_t> ids;
  int64_t tokens = -1;
  bool ignore_eos = false, json = false;
  DumpArgs dumps;
  const Cli* cli = nullptr;
};

std::vector<int32_t> narrow(const std::vector<int64_t>& ids) {
  std::vector<int32_t> out;
  out.reserve(ids.size());
  for (int64_t id : ids) {
    if (id < 0 || id > INT32_MAX) fail("token ids", {.what = "no such token", .got = std::to_string(id)});
    out.push_back(static_cast<int32_t>(id));
  }
  return out;
}

struct Prompt {
  std::vector<int32_t> ids;
  bool thinking = false;
};

void refuse_two_prompts(const Cli& cli) {
  std::string first;
  for (const std::string name : {"prompt", "chat", "file", "ids", "ids-file"}) {
    if (!cli.given(name)) continue;
    if (!first.empty())
      fail("run", {.what = "two prompts", .got = fmt::format("--{} and --{}", first, name), .expected = "one of them"});
    first = name;
  }
}

Prompt read_prompt(const Options& o, engine::LanguageModel& lm) {
  if (!o.ids.empty()) return {narrow(o.ids)};
  if (!o.ids_file.empty()) return {narrow(io::Npy(o.ids_file).integers())};
  need_tokenizer(lm.path(), "--ids 1,2,3");
  if (o.cli->given("chat")) {
    if (is_blank(o.chat)) fail("--chat", {.what = "the message is empty", .expected = "what to answer"});
    const std::string text = lm.render({{{"role", "user"}, {"content", o.chat}}}, {.think = think_switch(o.think)});
    return {lm.tokenizer().encode(text, false), engine::ends_in_think(text)};
  }
  const auto text = prompt_text(o.prompt, o.file);
  if (!text)
    fail("run", {.what = "no prompt", .hint = "-p TEXT, --chat TEXT, -f FILE, --ids 1,2,3 or --ids-file FILE.npy"});
  return {lm.tokenizer().encode(*text, true), engine::ends_in_think(*text)};
}

nlohmann::ordered_json timings_json(const engine::Timings& t) {
  const auto rate = [](int64_t n, double s) { return s > 0 ? static_cast<double>(n) / s : 0.0; };
  return {{"prompt_n", t.prompt_tokens},
          {"prompt_ms", 1e3 * t.prompt_seconds},
          {"prompt_per_second", rate(t.prompt_tokens, t.prompt_seconds)},
          {"predicted_n", t.generated_tokens},
          {"predicted_ms", 1e3 * t.generate_seconds},
          {"predicted_per_second", rate(t.generated_tokens, t.generate_seconds)}};
}

int run_command(const Options& o) {
  refuse_two_prompts(*o.cli);
  o.dumps.check();
  check_range("--predict", o.tokens, -1, int64_t{1} << 30);
  engine::LanguageModel lm(o.model.model, o.model.runner_options());
  const engine::GenerateOptions generate{
      .tokens_max = o.tokens, .sampling = o.sampling.resolve(*o.cli, lm.path()), .ignore_eos = o.ignore_eos};
  const Prompt prompt = read_prompt(o, lm);
  if (prompt.ids.empty()) fail("run", {.what = "the prompt has no tokens", .hint = "-p TEXT, or --chat TEXT"});
  Dumps dumps(o.dumps, lm.runner(), prompt.ids);

  // Without a tokenizer there are ids only: a folder of weights is enough for --ids.
  const bool speaks = text::has_tokenizer(lm.path().folder);
  std::optional<text::StreamDecoder> decoder;
  if (speaks) decoder.emplace(lm.tokenizer(), false);
  engine::ReasoningSplitter splitter(prompt.thinking);
  AnswerPrinter printer;
  std::string content, reasoning;
  const auto show = [&](const engine::ReasoningSplitter::Parts& parts) {
    content += parts.content;
    reasoning += parts.reasoning;
    if (!o.json) printer.print(parts);
  };
  sys::catch_interrupts();
  const engine::Generated out = engine::generate(
      lm.runner(), 0, {}, prompt.ids, generate,
      [&](int32_t id) {
        if (!speaks && !o.json) fmt::print("{} ", id);
        if (speaks && !lm.is_silent(id)) show(splitter.push(decoder->push(id)));
        return !sys::interrupted();
      },
      [&](const Tensor& x) { dumps.note(x); }, dumps.probe());
  if (speaks) {
    show(splitter.push(decoder->finish()));
    show(splitter.finish());
  }
  if (o.json) {
    const nlohmann::ordered_json answer = {{"prompt_ids", prompt.ids},
                                           {"ids", out.ids},
                                           {"text", content},
                                           {"reasoning", reasoning},
                                           {"finish_reason", engine::name_of(out.finish)},
                                           {"timings", timings_json(out.timings)}};
    fmt::print("{}\n", answer.dump());
  } else if (speaks) {
    printer.end();
  } else if (!out.ids.empty()) {
    fmt::print("\n");
  }
  return sys::interrupted() ? 130 : 0;
}

}  // namespace

Action setup_run(Cli& cli) {
  auto o = std::make_shared<Options>();
  o->cli = &cli;
  o->model.declare(cli);
  cli.option("-p,--prompt TEXT", o->prompt, "continue this text");
  cli.option("--chat TEXT", o->chat, "answer this message, through the chat template");
  cli.option("-f,--file FILE", o->file, "read the prompt from a file");
  cli.option("--ids", o->ids, "prompt as token ids: 1,2,3");
  cli.option("--ids-file F.npy", o->ids_file, "prompt as token ids of a NumPy file");
  cli.option("-n,--predict", o->tokens, "tokens to generate; -1: until the model ends");
  cli.choice("--think", o->think, {"on", "off"}, "reasoning, where the model has it");
  cli.flag("--ignore-eos", o->ignore_eos, "go on after the end token");
  cli.flag("--json", o->json, "JSON: ids, text, reasoning, finish_reason, timings");
  o->sampling.declare(cli);
  o->dumps.declare(cli);
  return [o] { return run_command(*o); };
}

}  // namespace braid::apps
