// braid serve: a model behind OpenAI's and Anthropic's HTTP interfaces.
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <thread>

#include "apps/commands.h"
#include "apps/model_args.h"
#include "serve/server.h"
#include "sys/error.h"
#include "sys/interrupt.h"

namespace braid::apps {
namespace {

struct ServeArgs {
  Cli* cli = nullptr;
  ModelArgs model;
  SamplingArgs sampling;
  std::string host = "127.0.0.1", key, alias, reasoning_field = "reasoning_content";
  int64_t port = 8080, parallel = 4, cached = 8, budget = -1, queue = 100, grace = 10;
};

// A folder or file by its last name: clients need not know where it is.
std::string name_of(const ServeArgs& o) {
  if (!o.alias.empty()) return o.alias;
  std::error_code none;
  const std::filesystem::path path = o.model.model;
  if (!std::filesystem::exists(path, none)) return o.model.model;
  return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
}

int serve_model(const ServeArgs& o) {
  check_range("--port", o.port, 0, 65535);
  check_range("--parallel", o.parallel, 1, 256);
  check_range("--cached-prefixes", o.cached, 0, 4096);
  check_range("--queue", o.queue, 0, 4096);
  check_range("--grace", o.grace, 0, 3600);
  check_range("--reasoning-budget", o.budget, -1, int64_t{1} << 30);
  const bool open = o.host != "127.0.0.1" && o.host != "localhost" && o.host != "::1";
  if (open && o.key.empty())
    fail("--host", {.what = "others could use the server", .got = printable(o.host), .expected = "--api-key as well"});
  sys::catch_requests_to_stop();
  std::optional<engine::LanguageModel> model;  // outlives the server, which answers while it is loaded
  serve::Server server({.host = o.host,
                        .port = static_cast<int>(o.port),
                        .key = o.key,
                        .parallel = o.parallel,
                        .queue = o.queue,
                        .cached = o.cached,
                        .log = [](const std::string& line) { fmt::print(stderr, "{}\n", line); }});
  engine::RunnerOptions options = o.model.runner_options();
  options.sequences = o.parallel + o.cached;
  engine::LanguageModel& lm = model.emplace(o.model.model, options);
  need_tokenizer(lm.path(), "a model with one");
  server.load(lm, {.model = name_of(o),
                   .sampling = o.sampling.resolve(*o.cli, lm.path()),
                   .seeded = o.cli->given("seed"),
                   .reasoning_field = o.reasoning_field,
                   .thinking_budget = o.budget});
  fmt::print(stderr, "{} in {}, context {} tokens, at http://{}:{}\n", printable(o.model.model),
             numbers_of(lm.runner()), lm.runner().options().context, printable(o.host), server.port());
  while (sys::caught_signal() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  sys::end_at_second_interrupt();
  server.stop(std::chrono::seconds(o.grace));
  return 128 + sys::caught_signal();
}

}  // namespace

Action setup_serve(Cli& cli) {
  auto o = std::make_shared<ServeArgs>();
  o->cli = &cli;
  o->model.declare(cli);
  cli.option("--host ADDRESS", o->host, "where to listen; others than this machine need --api-key");
  cli.option("--port", o->port, "0: any that is free");
  cli.option("--api-key TEXT", o->key, "that requests must have");
  cli.option("--alias NAME", o->alias, "the name of the model in answers");
  cli.option("--parallel", o->parallel, "answers at once; further requests wait");
  cli.option("--cached-prefixes", o->cached, "states kept for prompts that begin alike");
  o->sampling.declare(cli);
  cli.choice("--reasoning-field", o->reasoning_field, {"reasoning_content", "reasoning"}, "of thinking in chat");
  cli.option("--reasoning-budget", o->budget, "tokens of thinking at most; -1: no limit");
  cli.option("--queue", o->queue, "requests that may wait; others are refused");
  cli.rare();
  cli.option("--grace", o->grace, "seconds for answers to end when the server stops");
  o->sampling.declare_penalties(cli);
  return [o] { return serve_model(*o); };
}

}  // namespace braid::apps
