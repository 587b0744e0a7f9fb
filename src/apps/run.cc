// braid run: one prompt, one answer; and dumps of logits, hidden states, recurrent states and routes. As in chat, the
// answer goes to standard output and thinking to standard error.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "apps/answer_printer.h"
#include "apps/commands.h"
#include "apps/dumps.h"
#include "apps/loop_args.h"
#include "apps/messages.h"
#include "apps/model_args.h"
#include "apps/ranks_args.h"
#include "engine/logprobs.h"
#include "engine/reasoning.h"
#include "engine/scheduler.h"
#include "engine/stop_texts.h"
#include "io/npy.h"
#include "io/ordered_json.h"
#include "report/units.h"
#include "sys/error.h"
#include "sys/interrupt.h"
#include "text/gguf_vocabulary.h"

namespace braid::apps {
namespace {

using nlohmann::ordered_json;

struct RunArgs {
  ModelArgs model;
  RanksArgs ranks;
  SamplingArgs sampling;
  DraftArgs drafts;
  LoopArgs loop;
  std::string prompt, chat, system, messages, tools, file, ids_file, think, stop;
  std::vector<int64_t> ids;
  int64_t tokens = -1, logprobs = -1, budget = -1;
  bool ignore_eos = false, json = false;
  DumpArgs dumps;
  const Cli* cli = nullptr;
};

struct Prompt {
  std::vector<int32_t> ids;
  engine::Thinking thinking = engine::Thinking::none;
  bool raw = false;     // its continuation is printed as it is, tags of thinking included
  bool closed = false;  // it ends in </think>
};

void refuse_two_prompts(const Cli& cli) {
  std::string first;
  for (const std::string name : {"prompt", "chat", "messages", "file", "ids", "ids-file"}) {
    if (!cli.given(name)) continue;
    if (!first.empty())
      fail("run", {.what = "two prompts", .got = fmt::format("--{} and --{}", first, name), .expected = "one of them"});
    first = name;
  }
}

bool is_conversation(const RunArgs& o) { return o.cli->given("chat") || o.cli->given("messages"); }

void check_options(const RunArgs& o) {
  for (const auto& [name, value] : {std::pair("system", &o.system), {"tools", &o.tools}, {"think", &o.think}}) {
    if (is_conversation(o) || value->empty()) continue;
    fail(fmt::format("--{}", name), {.what = "is for a conversation", .hint = "--chat TEXT or --messages F.json"});
  }
  for (const auto& [flag, text] : {std::pair("--prompt", &o.prompt), {"--chat", &o.chat}, {"--system", &o.system}})
    check_utf8(flag, *text);
  check_range("--predict", o.tokens, -1, int64_t{1} << 30);
  check_range("--reasoning-budget", o.budget, -1, int64_t{1} << 30);
  if (o.cli->given("stop") && o.stop.empty())
    fail("--stop", {.what = "is empty", .expected = "the text that ends an answer"});
  if (o.cli->given("logprobs")) check_range("--logprobs", o.logprobs, -1, 1000);
  if (o.logprobs >= 0 && !o.json) fail("--logprobs", {.what = "is part of the JSON", .hint = "--json"});
}

// What --chat, --messages and --system make of a conversation; nullopt for a plain prompt.
std::optional<ordered_json> conversation_of(const RunArgs& o) {
  if (!is_conversation(o)) return std::nullopt;
  if (o.cli->given("chat") && is_blank(o.chat))
    fail("--chat", {.what = "the message is empty", .expected = "what to answer"});
  ordered_json messages =
      o.cli->given("chat") ? ordered_json::array({{{"role", "user"}, {"content", o.chat}}}) : read_messages(o.messages);
  if (o.system.empty()) return messages;
  if (messages[0]["role"] == "system")
    fail("--system", {.what = "the conversation has a system message already", .got = printable(o.messages)});
  messages.insert(messages.begin(), ordered_json{{"role", "system"}, {"content", o.system}});
  return messages;
}

Prompt read_prompt(const RunArgs& o, engine::LanguageModel& lm) {
  const int64_t vocab = lm.runner().config().vocab;
  if (!o.ids.empty()) return {.ids = token_ids("--ids", o.ids, vocab), .raw = true};
  if (!o.ids_file.empty()) return {.ids = token_ids("--ids-file", io::Npy(o.ids_file).integers(), vocab), .raw = true};
  need_tokenizer(lm.path(), "--ids 1,2,3");
  if (const auto messages = conversation_of(o)) {
    const auto tools = o.tools.empty() ? std::nullopt : std::optional(read_tools(o.tools));
    const std::optional<bool> think = think_switch(o.think);
    const std::string text = lm.render(*messages, {.think = think, .tools = tools ? &*tools : nullptr});
    if (think && !*think && !lm.has_think_switch())
      fmt::print(stderr, "note: --think off changes nothing: this model's chat template has no switch for thinking\n");
    return {.ids = lm.tokenizer().encode(text, false),
            .thinking = lm.thinking_after(text, think),
            .closed = engine::ends_in_closed_think(text)};
  }
  const auto text = prompt_text(o.model.ranks, o.prompt, o.file);
  if (!text)
    fail("run", {.what = "no prompt",
                 .hint = "-p TEXT, --chat TEXT, --messages F.json, -f FILE, --ids 1,2,3 or --ids-file FILE.npy"});
  const bool opened = engine::ends_in_think(*text);
  return {lm.tokenizer().encode(*text, true), opened ? engine::Thinking::open : engine::Thinking::none, true};
}

// What follows the text of the answer.
void print_end(const RunArgs& o, const engine::Generated& out, AnswerPrinter& printer, bool speaks,
               bool context_may_grow) {
  if (!speaks) {
    if (!out.ids.empty()) fmt::print("\n");
    return;
  }
  printer.end();
  printer.speed(out.timings, 0);
  if (out.finish == engine::Finish::length)
    printer.note(o.tokens >= 0 && std::ssize(out.ids) == o.tokens
                     ? fmt::format("stopped after {} (-n)", report::counted(o.tokens, "token"))
                 : context_may_grow ? "the context is full (-c)"
                                    : "the context is full");
}

void print_json(const RunArgs& o, const Prompt& prompt, const engine::Generated& out, const std::string& content,
                const std::string& reasoning, const text::Tokenizer* tokenizer, const std::vector<int64_t>& steps) {
  ordered_json answer = {{"prompt_ids", prompt.ids},
                         {"ids", out.ids},
                         {"text", content},
                         {"reasoning", reasoning},
                         {"finish_reason", engine::name_of(out.finish)},
                         {"timings", timings_json(out.timings)}};
  if (o.logprobs >= 0) answer["logprobs"] = engine::logprobs_json(tokenizer, out.logprobs);
  if (!steps.empty()) answer["steps"] = steps;
  fmt::print("{}\n", io::dumped(answer));
}

int run_command(const RunArgs& o) {
  refuse_two_prompts(*o.cli);
  check_options(o);
  o.dumps.check(o.ranks.pp > 1, o.model.ranks != nullptr);
  engine::RunnerOptions options = o.model.runner_options();
  o.drafts.reserve(options, 1);
  o.loop.resolve(options, o.sampling.seed);
  const std::optional<engine::DraftModel> draft = o.drafts.load(options);
  engine::LanguageModel lm = o.model.open(options);
  engine::GenerateOptions generate{.tokens_max = o.tokens,
                                   .sampling = o.sampling.resolve(*o.cli, lm.path()),
                                   .ignore_eos = o.ignore_eos,
                                   .logprobs = o.logprobs};
  const Prompt prompt = read_prompt(o, lm);
  if (prompt.ids.empty()) fail("run", {.what = "the prompt has no tokens", .hint = "-p TEXT, or --chat TEXT"});
  o.loop.check(*o.cli, lm.runner(), std::ssize(prompt.ids));
  AnswerPrinter printer(prompt.raw);
  generate.thinking = prompt.thinking;
  const bool thinks = prompt.thinking != engine::Thinking::none;
  if (thinks) generate.budget = lm.reasoning_budget(o.budget);
  if (!thinks && o.budget >= 0) printer.note("--reasoning-budget: no thinking was asked for");
  lm.runner().pool().check_fits(std::ssize(prompt.ids));
  if (std::ssize(prompt.ids) == lm.runner().options().context) generate.tokens_max = 0;  // read it, for dumps
  Dumps dumps(o.dumps, lm.runner(), prompt.ids);

  // Without a tokenizer there are ids only: a folder of weights is enough for --ids.
  const bool speaks = text::has_tokenizer(lm.path().folder);
  std::optional<text::StreamDecoder> decoder;
  if (!speaks && !o.stop.empty())
    fail("--stop", {.what = "is text, and the model has no tokenizer", .got = printable(o.stop)});
  if (speaks) decoder.emplace(lm.tokenizer(), false);
  engine::ReasoningSplitter splitter(prompt.thinking == engine::Thinking::open, prompt.closed);
  std::string content, reasoning;
  std::vector<int64_t> steps;  // of recurrent depth, for each token
  engine::StopTexts stop(o.stop.empty() ? std::vector<std::string>{} : std::vector{o.stop});
  const auto show = [&](engine::ReasoningSplitter::Parts parts, bool last = false) {
    parts.content = stop.push(parts.content) + (last ? stop.finish() : "");
    content += parts.content;
    reasoning += parts.reasoning;
    if (!o.json) printer.print(parts);
  };
  const auto parts_of = [&](std::string text) {
    return prompt.raw ? engine::ReasoningSplitter::Parts{.reasoning = "", .content = std::move(text)}
                      : splitter.push(text);
  };
  // A terminal is left as it was; of several ranks, one that gets a signal ends at once.
  o.model.ranks ? sys::catch_interrupts() : sys::catch_requests_to_stop();
  const auto stopped = [&] { return lm.runner().interrupted() || sys::asked_to_stop(); };
  engine::Scheduler scheduler(lm.runner(), o.loop.drafts(*o.cli, lm.runner(), o.drafts.resolve(lm, draft)));
  engine::Generated out =
      engine::generate(scheduler, {.prompt = prompt.ids,
                                   .generate = generate,
                                   .probe = dumps.probe(),
                                   .wanted = [&] { return !stopped(); },
                                   .on_piece = [&](const Tensor& x, int64_t, int64_t) { dumps.note(x); },
                                   .on_token =
                                       [&](int32_t id) {
                                         if (lm.runner().config().loop) steps.push_back(lm.runner().loop_steps());
                                         if (!speaks && !o.json) fmt::print("{} ", id);
                                         if (speaks && !lm.is_silent(id)) show(parts_of(decoder->push(id)));
                                         return !stopped() && !stop.found();
                                       }});
  if (speaks) show(parts_of(decoder->finish())), show(splitter.finish(), true);
  if (stop.found()) out.finish = engine::Finish::stop;
  if (o.json)
    print_json(o, prompt, out, content, reasoning, speaks ? &lm.tokenizer() : nullptr, steps);
  else
    print_end(o, out, printer, speaks, lm.runner().context_may_grow());
  return stopped() ? (sys::asked_to_stop() ? 128 + sys::caught_signal() : 130) : 0;
}

}  // namespace

Action setup_run(Cli& cli) {
  auto o = std::make_shared<RunArgs>();
  o->cli = &cli;
  o->model.declare(cli);
  cli.option("-p,--prompt TEXT", o->prompt, "continue this text");
  cli.option("--chat TEXT", o->chat, "answer this message, through the chat template");
  cli.option("--system TEXT", o->system, "instructions for the model, with --chat or --messages");
  cli.option("--messages F.json", o->messages, "answer this conversation: [{role, content}, ...]");
  cli.option("--tools F.json", o->tools, "functions that the model may call, in OpenAI's form");
  cli.option("-f,--file FILE", o->file, "read the prompt from a file");
  cli.option("--ids", o->ids, "prompt as token ids: 1,2,3");
  cli.option("-n,--predict", o->tokens, "tokens to generate; -1: until the model ends");
  cli.choice("--think", o->think, {"on", "off"}, "reasoning, if the model has it");
  cli.flag("--ignore-eos", o->ignore_eos, "go on after the end token");
  cli.flag("--json", o->json, "JSON: ids, text, reasoning, finish_reason, timings");
  cli.option("--logprobs", o->logprobs, "log-probabilities of N in --json; -1: none");
  o->sampling.declare(cli);
  cli.rare();
  cli.option("--stop TEXT", o->stop, "end the answer before this text");
  cli.option("--ids-file F.npy", o->ids_file, "prompt as token ids of a NumPy file");
  o->drafts.declare(cli);
  o->loop.declare(cli);
  cli.option("--reasoning-budget", o->budget, "tokens of thinking at most, then the answer; -1: no limit");
  o->sampling.declare_penalties(cli);
  o->ranks.declare(cli);
  o->dumps.declare(cli);
  return [o, &cli] { return o->ranks.start(o->model, cli, {o->model.model}, [o] { return run_command(*o); }); };
}

}  // namespace braid::apps
