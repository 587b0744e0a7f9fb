// braid serve: a model behind OpenAI's and Anthropic's HTTP interfaces.
#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "apps/commands.h"
#include "apps/model_args.h"
#include "engine/prefix_file.h"
#include "io/atomic_file.h"
#include "io/file_lock.h"
#include "report/units.h"
#include "serve/cors.h"
#include "serve/server.h"
#include "sys/error.h"
#include "sys/interrupt.h"
#include "sys/mapped_file.h"

namespace braid::apps {
namespace {

struct ServeArgs {
  Cli* cli = nullptr;
  ModelArgs model;
  SamplingArgs sampling;
  DraftArgs drafts;
  std::string host = "127.0.0.1", snapshots = "f32", key, alias, memory, cache_file, log, cors,
              reasoning_field = "reasoning_content";
  int64_t port = 8080, parallel = 4, budget = -1, queue = 100, grace = 10, latency = 250;
};

// On standard error, which may be closed or full: the server runs all the same.
template <class... Args>
void tell(fmt::format_string<Args...> form, Args&&... args) {
  (void)std::fputs(fmt::format(form, std::forward<Args>(args)...).c_str(), stderr);
}

// No connection must become standard output or standard error.
void open_standard_files() {
  while (true) {
    const int file = open("/dev/null", O_RDWR);
    if (file > STDERR_FILENO) close(file);
    if (file < 0 || file > STDERR_FILENO) return;
  }
}

// A folder or file by its last name: clients need not know where it is.
std::string name_of(const ServeArgs& o) {
  if (!o.alias.empty()) return o.alias;
  std::error_code none;
  const std::filesystem::path path = o.model.model;
  if (!std::filesystem::exists(path, none)) return o.model.model;
  return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
}

// "4GiB", "512M", "1000000": units of 1024, or of 1000 with a final B.
int64_t bytes_of(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  constexpr std::pair<const char*, double> kUnits[] = {
      {"", 1},         {"B", 1},        {"K", 0x1p10},   {"M", 0x1p20}, {"G", 0x1p30}, {"T", 0x1p40}, {"KiB", 0x1p10},
      {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"KB", 1e3},   {"MB", 1e6},   {"GB", 1e9},   {"TB", 1e12}};
  for (const auto& [name, factor] : kUnits) {
    if (unit == name && end != text.c_str() && number >= 1 && number * factor < 0x1p60)
      return static_cast<int64_t>(number * factor);
  }
  fail("--memory",
       {.what = "not a size", .got = printable(text), .expected = "a number of bytes such as 4GiB or 500MB"});
}

// It will be replaced at the end: another file must not be. One shorter than the beginning of its own is what a lost
// write may leave: it is ignored like others that are damaged, and put aside.
void check_cache_file(const std::string& file) {
  (void)io::check_parent(file);
  std::error_code none;
  if (!std::filesystem::exists(file, none)) return;
  const sys::MappedFile mapped(file);
  const auto bytes = mapped.bytes();
  const std::string_view begin(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (begin.size() >= engine::kPrefixFileMagic.size() && !begin.starts_with(engine::kPrefixFileMagic))
    fail("--cache-file", {.what = "another file has this name", .got = printable(file), .hint = "another name"});
}

// What a header can hold: `--api-key "$KEY"` of a variable that is not set must not open the server to everybody.
void check_key(const std::string& key) {
  const auto odd = [](unsigned char c) { return c < ' ' || c == 0x7f; };
  const bool outer = !key.empty() && (key.front() == ' ' || key.back() == ' ');
  if (key.empty()) fail("--api-key", {.what = "is empty", .expected = "a key", .hint = "without --api-key for none"});
  if (outer || std::ranges::any_of(key, odd))
    fail("--api-key", {.what = "has control characters, or spaces around it, which no request could send",
                       .expected = "printable characters"});
}

// Lines for FILE, each written whole, or for standard error. When it cannot be written, lines are
// dropped with one warning on standard error, and requests are still answered.
std::function<void(const std::string&)> request_log(const std::string& file) {
  if (file.empty()) return {};
  int descriptor = STDERR_FILENO;
  if (file != "-") {
    (void)io::check_parent(file);
    descriptor = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (descriptor < 0)
      fail_environment("--log", {.what = std::strerror(errno), .got = printable(file), .hint = "another file, or -"});
  }
  return [descriptor, file, told = std::make_shared<std::atomic_flag>()](const std::string& line) {
    const std::string whole = line + "\n";
    const ssize_t written = write(descriptor, whole.data(), whole.size());
    if (written != std::ssize(whole) && descriptor != STDERR_FILENO && !told->test_and_set())
      tell("--log: lines are lost, {} cannot be written: {}\n", printable(file),
           written < 0 ? std::strerror(errno) : "the disk is full");
  };
}

void check(const ServeArgs& o) {
  check_range("--port", o.port, 0, 65535);
  check_range("--parallel", o.parallel, 1, 256);
  check_range("--queue", o.queue, 0, 4096);
  check_range("--grace", o.grace, 0, 3600);
  check_range("--latency-target", o.latency, 0, 60000);
  check_range("--reasoning-budget", o.budget, -1, int64_t{1} << 30);
  if (o.cli->given("api-key")) check_key(o.key);
  const bool open = o.host != "127.0.0.1" && o.host != "localhost" && o.host != "::1";
  if (open && o.key.empty())
    fail("--host", {.what = "others could use the server", .got = printable(o.host), .expected = "--api-key as well"});
}

int serve_model(const ServeArgs& o) {
  check(o);
  open_standard_files();
  const int64_t memory = o.memory.empty() ? engine::kMemoryShare : bytes_of(o.memory);
  std::optional<io::FileLock> lock;  // of two servers each would replace what the other wrote
  std::string cache_file;            // links resolved: the file has one lock, whatever it is called
  if (!o.cache_file.empty()) {
    check_cache_file(o.cache_file);
    cache_file = std::filesystem::weakly_canonical(o.cache_file).string();
    lock.emplace(cache_file, "--cache-file");
  }
  // Large bodies go back to the system when they are done: glibc would raise this threshold to their size, and retain
  // them in the arenas of many threads.
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  mallopt(M_ARENA_MAX, 4);
  sys::catch_requests_to_stop();
  // Both outlive the server, which answers while they are loaded.
  std::optional<engine::DraftModel> draft;
  std::optional<engine::LanguageModel> model;
  serve::Server server({.host = o.host,
                        .port = static_cast<int>(o.port),
                        .origins = serve::origins_of(o.cors),
                        .key = o.key,
                        .parallel = o.parallel,
                        .queue = o.queue,
                        .cache_file = cache_file,
                        .log = [](const std::string& line) { tell("{}\n", line); },
                        .requests = request_log(o.log)});
  engine::RunnerOptions options = o.model.runner_options();
  options.sequences = o.parallel;
  options.memory = memory;
  options.pass_seconds = static_cast<double>(o.latency) / 1000;
  if (o.snapshots == "int8") {
    options.snapshots = DType::i8;
    const bool exact = options.numerics.exact;
    if (exact || options.numerics.ssm != DType::f32)
      fail("--snapshots", {.what = exact ? "int8 rounds states, so that answers from cached prefixes are not exact"
                                         : "int8 is for states that are computed in f32",
                           .got = "int8",
                           .expected = "f32",
                           .hint = exact ? "--snapshots f32, or no --exact" : "--mamba-ssm-cache-dtype f32"});
  }
  o.drafts.reserve(options, o.parallel);
  draft = o.drafts.load(options);
  engine::LanguageModel& lm = model.emplace(o.model.open(options));
  need_tokenizer(lm.path(), "a model with one");
  const std::vector<std::string> notes = server.load(lm,
                                                     {.model = name_of(o),
                                                      .sampling = o.sampling.resolve(*o.cli, lm.path()),
                                                      .seeded = o.cli->given("seed"),
                                                      .reasoning_field = o.reasoning_field,
                                                      .thinking_budget = o.budget},
                                                     o.drafts.resolve(lm, draft));
  for (const std::string& note : notes) tell("{}\n", note);
  tell("{} in {}, context {} tokens, at http://{}:{}\n", printable(o.model.model), numbers_of(lm.runner()),
       lm.runner().options().context,
       o.host.find(':') == o.host.npos ? printable(o.host) : "[" + printable(o.host) + "]", server.port());
  while (sys::caught_signal() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  sys::end_at_second_interrupt();
  if (const int64_t running = server.active(); running > 0)
    tell("waiting up to {} s for {} to end; Ctrl-C again stops at once\n", o.grace, report::counted(running, "answer"));
  server.stop(std::chrono::seconds(o.grace));
  server.save_cache();
  return 128 + sys::caught_signal();
}

}  // namespace

Action setup_serve(Cli& cli) {
  auto o = std::make_shared<ServeArgs>();
  o->cli = &cli;
  o->model.declare(cli);
  cli.option("--host ADDRESS", o->host, "where to listen; others than this machine need --api-key");
  cli.option("--port", o->port, "0: any that is free");
  cli.option("--api-key TEXT", o->key, "a key that requests must send");
  cli.option("--alias NAME", o->alias, "the name of the model in answers");
  cli.option("--parallel", o->parallel, "answers at once; further requests wait");
  cli.option("--memory SIZE", o->memory, "for requests and cached prefixes; half of free");
  cli.option("--cache-file FILE", o->cache_file, "cached prefixes from one run to the next");
  cli.choice("--snapshots", o->snapshots, {"f32", "int8"}, "of Mamba states of cached prefixes");
  o->drafts.declare(cli);
  o->sampling.declare(cli);
  cli.says("a random one");  // of --seed
  cli.option("--reasoning-budget", o->budget, "tokens of thinking at most; -1: no limit");
  cli.option("--queue", o->queue, "requests (not answers) that may wait");
  cli.option("--log FILE", o->log, "a line for each request; -: standard error");
  cli.rare();
  cli.choice("--reasoning-field", o->reasoning_field, {"reasoning_content", "reasoning"}, "of thinking in chat");
  cli.option("--cors ORIGINS", o->cors, "other pages that may use the server, with commas; *: all");
  cli.option("--latency-target MS", o->latency, "how long answers wait while prompts are read; 0: for whole pieces");
  cli.option("--grace", o->grace, "seconds for answers to end when the server stops");
  o->sampling.declare_penalties(cli);
  return [o] { return serve_model(*o); };
}

}  // namespace braid::apps
