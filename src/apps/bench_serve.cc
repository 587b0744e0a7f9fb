// braid bench serve: a load of requests on a server that speaks OpenAI's HTTP interface, measured as `vllm bench serve`
// does: the same random or given prompts, arrivals and metrics.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "apps/commands.h"
#include "apps/model_args.h"
#include "apps/result.h"
#include "io/atomic_file.h"
#include "report/progress.h"
#include "sys/error.h"
#include "sys/interrupt.h"
#include "text/tokenizer.h"
#include "traffic/metrics.h"

namespace braid::apps {
namespace {

struct BenchServeArgs {
  std::string tokenizer = "tiny", endpoint = "completions", dataset, goals, result;
  traffic::Target target;
  traffic::Pace pace;
  traffic::RandomPrompts random;
  int64_t seed = 0;
  bool json = false;
  const Cli* cli = nullptr;
};

void check(const BenchServeArgs& o) {
  check_range("--num-prompts", o.random.count, 1, 1000000);
  check_range("--random-input-len", o.random.input_tokens, 1, 1 << 24);
  check_range("--random-output-len", o.random.output_tokens, 1, 1 << 24);
  check_range("--random-prefix-len", o.random.prefix_tokens, 0, 1 << 24);
  check_range("--max-concurrency", o.pace.concurrency, 0, 1024);
  check_range("--seed", o.seed, 0, int64_t{1} << 53);
  const auto real = [](const char* flag, double value, double low, double high) {
    if (!(value >= low && value <= high))
      fail(
          flag,
          {.what = "is out of range", .got = fmt::format("{}", value), .expected = fmt::format("{} to {}", low, high)});
  };
  real("--request-rate", o.pace.rate, 0, 1e6);
  real("--burstiness", o.pace.burstiness, 0.01, 1e6);
  real("--random-range-ratio", o.random.range_ratio, 0, 0.99);
  real("--temp", o.target.temperature, 0, 100);
  if (o.dataset.empty()) return;
  for (const char* name : {"random-input-len", "random-range-ratio", "random-prefix-len"})
    refuse_unread("--dataset-path", {{("--" + std::string(name)).c_str(), typed(*o.cli, name)}});
}

// http://HOST:PORT of an address as clients of OpenAI have it.
std::string server_of(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme) || url.size() == kScheme.size())
    fail("--base-url",
         {.what = "is not a server that can be reached", .got = printable(url), .expected = "http://HOST:PORT"});
  const size_t end = std::min(url.find_first_of("/?#", kScheme.size()), url.size());
  const std::string path = url.substr(end);
  if (path != "" && path != "/" && path != "/v1" && path != "/v1/")
    fail("--base-url", {.what = "has a path, which is that of --endpoint",
                        .got = printable(path),
                        .expected = "http://HOST:PORT or http://HOST:PORT/v1"});
  return url.substr(0, end);
}

// What to do about an error that all requests have: of an answer it begins with its status.
const char* remedy_of(const std::string& error) {
  constexpr std::pair<std::string_view, const char*> kRemedies[] = {
      {"401", "--api-key"},
      {"403", "--api-key"},
      {"404", "another --endpoint, or another --base-url"},
      {"429", "fewer at once: --max-concurrency, --request-rate"},
      {"4", "requests that this server takes: other prompts, lengths or --model"},
      {"5", "the server's own messages"}};
  for (const auto& [status, remedy] : kRemedies) {
    if (error.starts_with(status)) return remedy;
  }
  return "braid serve, or another --base-url";
}

int bench_serve(BenchServeArgs o) {
  check(o);
  o.target.chat = o.endpoint == "chat";
  o.target.url = server_of(o.target.url);
  o.random.seed = o.pace.seed = static_cast<uint64_t>(o.seed);
  const std::map<std::string, double> goals = traffic::read_goals(o.goals);
  const std::vector<traffic::Prompt> prompts =
      o.dataset.empty() ? traffic::random_prompts(text::Tokenizer::load(find_tokenizer(o.tokenizer)), o.random)
                        : traffic::file_prompts(o.dataset, o.random.count, o.random.output_tokens);
  for (const traffic::Prompt& p : prompts) {
    if (p.content.is_array() && !o.target.chat)
      fail("--dataset-path", {.what = "has messages, which completions do not take",
                              .got = printable(o.dataset),
                              .hint = "--endpoint chat"});
  }
  std::optional<io::AtomicFile> result;
  if (!o.result.empty()) result.emplace(o.result);  // an Error before the load, not after it
  sys::catch_requests_to_stop();
  sys::end_at_second_interrupt();
  std::vector<traffic::Sample> samples;
  {
    report::Progress bar("requests", std::ssize(prompts));
    samples = traffic::send_all(o.target, prompts, o.pace, [&](int64_t ended) {
      bar.at(ended);
      return sys::caught_signal() == 0;
    });
  }
  if (sys::caught_signal() != 0) {
    fmt::print(stderr, "stopped before all of the {} requests had ended; nothing is kept\n", prompts.size());
    return 128 + sys::caught_signal();
  }
  const traffic::Report report = traffic::report_of(samples, goals);
  const bool none = report.completed == 0 && !report.errors.empty();
  for (size_t i = none ? 1 : 0; i < report.errors.size(); ++i) fmt::print(stderr, "failed: {}\n", report.errors[i]);
  if (none)
    fail_environment(printable(o.target.url),
                     {.what = "no request was answered", .got = report.errors[0], .hint = remedy_of(report.errors[0])});
  nlohmann::ordered_json object = traffic::json_of(report);
  object["num_prompts"] = std::ssize(prompts);
  object["request_rate"] = o.pace.rate > 0 ? nlohmann::ordered_json(o.pace.rate) : "inf";
  object["burstiness"] = o.pace.burstiness;
  object["max_concurrency"] = o.pace.concurrency;
  if (result) {
    result->write(object.dump(2) + "\n");
    result->commit();
  }
  fmt::print("{}", o.json ? object.dump() + "\n" : traffic::table_of(report, !goals.empty()));
  return report.failed > 0 ? 2 : 0;
}

}  // namespace

Action setup_bench_serve(Cli& cli) {
  auto o = std::make_shared<BenchServeArgs>();
  o->cli = &cli;
  cli.positional("TOKENIZER", o->tokenizer, "whose vocabulary random prompts are drawn from", false);
  cli.option("--base-url URL", o->target.url, "the server");
  cli.choice("--endpoint", o->endpoint, {"completions", "chat"}, "which requests to send");
  cli.option("--model NAME", o->target.model, "the model field of requests");
  cli.option("--api-key TEXT", o->target.key, "a key, sent as a bearer token");
  cli.option("--num-prompts", o->random.count, "requests to send");
  cli.option("--request-rate", o->pace.rate, "requests per second; 0: all at once");
  cli.option("--max-concurrency", o->pace.concurrency, "requests in flight at most; 0: 1024");
  cli.option("--dataset-path FILE", o->dataset, "prompts, a JSON object per line: prompt or messages, output_tokens");
  cli.option("--random-input-len", o->random.input_tokens, "tokens of a random prompt");
  cli.option("--random-output-len", o->random.output_tokens, "tokens of an answer");
  cli.option("--random-range-ratio", o->random.range_ratio, "lengths vary by this share, up and down");
  cli.option("--random-prefix-len", o->random.prefix_tokens, "tokens that all random prompts begin with");
  cli.flag("--ignore-eos", o->target.ignore_eos, "generate the whole length");
  cli.option("--goodput GOALS", o->goals, "milliseconds a good request takes: ttft:500 tpot:50 e2el:5000");
  cli.option("--seed", o->seed, "of prompts and arrivals");
  cli.option("--save-result FILE", o->result, "also write the JSON object there");
  cli.flag("--json", o->json, "print one JSON object");
  cli.rare();
  cli.option("--burstiness", o->pace.burstiness, "shape of the gaps between requests; 1: Poisson, less: in bursts");
  cli.option("--temp", o->target.temperature, "temperature of requests; 0: greedy");
  return [o] { return bench_serve(*o); };
}

}  // namespace braid::apps
