#include "apps/ranks_args.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "apps/split.h"
#include "apps/version.h"
#include "comm/mpi.h"
#include "comm/selector.h"
#include "comm/shm.h"
#include "comm/tcp.h"
#include "io/checksum.h"
#include "models/load_part.h"
#include "models/presets.h"
#include "sys/error.h"
#include "sys/mapped_file.h"
#include "sys/parallel.h"
#include "sys/read.h"

namespace braid::apps {
namespace {

constexpr int64_t kRanksMost = 256;

// Of a rank whose output nobody wants, until its end: an error that ends it is still to be seen.
class Silence {
 public:
  explicit Silence(bool silent) {
    if (!silent) return;
    std::fflush(nullptr);
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    for (size_t i = 0; i < 2 && nowhere >= 0; ++i) {
      saved_[i] = dup(kStreams[i]);
      dup2(nowhere, kStreams[i]);
    }
    close(nowhere);
  }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;
  ~Silence() {
    std::fflush(nullptr);
    for (size_t i = 0; i < 2; ++i) {
      if (saved_[i] < 0) continue;
      dup2(saved_[i], kStreams[i]);
      close(saved_[i]);
    }
  }

 private:
  static constexpr int kStreams[] = {STDOUT_FILENO, STDERR_FILENO};
  int saved_[2] = {-1, -1};
};

}  // namespace

void RanksArgs::declare(Cli& cli) {
  cli.option("--tp", tp, "ranks that divide heads, channels and vocabulary; also: mpirun -n N braid ...");
  cli.option("--pp", pp, "stages of layers, each on other ranks");
  cli.option("--ep", ep, "ranks that divide experts");
  cli.option("--ranks", ranks, "processes that share the model; 0: as many as the three options take");
  start_of_ranks.declare(cli);
  cli.option("--times FILE", collectives, "choose algorithms by the times that comm tune wrote");
}

void StartArgs::declare(Cli& cli) {
  cli.option("--hosts LIST", hosts, "ADDRESS:PORT of every rank, each of which is started by hand (TCP)");
  cli.option("--rank", rank, "with --hosts: the place of this one, from 0");
}

std::vector<std::string> StartArgs::list() const { return hosts.empty() ? std::vector<std::string>() : split(hosts); }

int StartArgs::given(int64_t ranks) const {
  check_range("--ranks", ranks, 0, kRanksMost);
  const int64_t of_mpirun = comm::ranks_of_mpirun(), listed = std::ssize(list());
  if (listed > kRanksMost)
    fail("--hosts", {.what = "are too many", .got = std::to_string(listed), .expected = std::to_string(kRanksMost)});
  if (listed > 0 && of_mpirun > 0) fail("--hosts", {.what = "mpirun connects its ranks itself", .hint = "no --hosts"});
  if (listed == 1)
    fail("--hosts", {.what = "one rank needs no list", .got = printable(hosts), .expected = "two addresses or more"});
  if (listed > 0) check_range("--rank", rank, 0, listed - 1);
  if (listed == 0 && rank != 0)
    fail("--rank", {.what = "applies only with --hosts", .got = std::to_string(rank), .hint = "--hosts A:4000,B:4000"});
  const int64_t there = std::max(of_mpirun, listed);
  if (there > 0 && ranks > 0 && ranks != there)
    fail("--ranks", {.what = listed > 0 ? "is not what --hosts lists" : "is not what mpirun started",
                     .got = std::to_string(ranks),
                     .expected = std::to_string(there)});
  return static_cast<int>(std::max(there, ranks));
}

void StartArgs::run(int size, comm::Words words, const std::string& collectives,
                    const std::function<void(comm::Group& world)>& body) const {
  const std::vector<std::string> addresses = list();
  const comm::Place place{addresses, static_cast<int>(rank)};
  comm::Options options{.timeout = std::chrono::hours(1), .per_node = size, .on_machine = size};
  if (!addresses.empty())
    options.per_node = std::max(1, comm::node_ranks_of(addresses)), options.on_machine = comm::ranks_beside(place);
  else if (comm::ranks_of_mpirun() > 0)
    options.per_node = options.on_machine = comm::local_ranks_of_mpirun();
  std::string times;
  if (!collectives.empty()) {
    times = sys::read_file(collectives, comm::kTimesBytesMost);
    const comm::Selector check(comm::read_times(collectives, times), comm::Learner::costs);  // before ranks start
  }
  words.emplace_back("build", build().commit);
  const auto all = [&](comm::Group& world) {
    comm::check_same_words(world, words);
    if (!times.empty()) world.choose_by(collectives, times);
    body(world);
  };
  if (!addresses.empty()) return comm::run_over_hosts(place, options, all);
  comm::ranks_of_mpirun() > 0 ? comm::run_under_mpi(options, all) : comm::run_in_processes(size, options, all);
}

// Of the ranks that there are, or are to be started.
int RanksArgs::count() const {
  const models::Division division{.tp = tp, .pp = pp, .ep = ep};
  const int64_t needed = division.ranks();
  for (const auto& [flag, value] : {std::pair("--tp", tp), {"--pp", pp}, {"--ep", ep}, {"their product", needed}})
    check_range(flag, value, 1, kRanksMost);
  const int64_t there = start_of_ranks.given(ranks), given = there > 0 ? there : needed;
  if (given == needed) return static_cast<int>(given);
  const char* more = comm::ranks_of_mpirun() > 0 ? "mpirun -np" : "--ranks";
  fail("--ranks", {.what = "is not what --tp, --pp and --ep divide the model among",
                   .got = std::to_string(given),
                   .expected = std::to_string(needed),
                   .hint = fmt::format("{} {}", needed == 1 ? "--tp" : more, needed == 1 ? given : needed)});
}

namespace {

// What is not compared: the model, by its name alone, and what has its effective value; what the first rank decides for
// all, a machine of its own has, or concerns output.
constexpr std::string_view kOwn[] = {"--prompt", "--file", "--threads", "--hosts",   "--rank",
                                     "--ranks",  "--json", "--output",  "--progress"};
constexpr std::string_view kFolders[] = {"--draft-model", "--kl", "--adapter"};
constexpr std::string_view kFiles[] = {"--messages", "--tools", "--ids-file",      "--text",
                                       "--jsonl",    "--tasks", "--replay-routes", "--input-states"};
// The first rank alone reads or writes them, but all take part.
constexpr std::string_view kOfFirst[] = {"--times",       "--answers",    "--dump-logits", "--dump-mtp",
                                         "--dump-hidden", "--dump-state", "--dump-routes"};

// Of a file's bytes: its folder may be another on another machine. Other words are compared as text.
std::string content_of(const std::string& path) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return path;
  const sys::MappedFile file(path);
  io::Checksum sum;
  sum.update(file.bytes());
  return fmt::format("a file of {} bytes, {:016x}", file.bytes().size(), sum.value());
}

void add_given(const Cli& cli, comm::Words& words) {
  const size_t effective = words.size();
  const auto among = [](std::span<const std::string_view> names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const auto& option : cli.words()) {
    const std::string &name = option.first, &text = option.second;
    const bool known = std::any_of(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(effective),
                                   [&](const auto& word) { return word.first == name; });
    if (known || among(kOwn, name)) continue;
    if (text.empty())
      words.emplace_back(name, "not given");
    else if (among(kFolders, name))
      words.emplace_back(name, std::filesystem::path(text).filename().string());
    else if (among(kFiles, name))
      words.emplace_back(name, content_of(text));
    else
      words.emplace_back(name, among(kOfFirst, name) ? "given" : printable(text, 8 * text.size()));
  }
}

comm::Words words_of(const ModelArgs& m, const models::Division& division, const Cli& cli) {
  comm::Words words = {{"model", std::filesystem::path(m.model).filename().string()},
                       {"--dtype", m.dtype},
                       {"--activations", m.activations},
                       {"--kv-cache-dtype", m.kv},
                       {"--mamba-ssm-cache-dtype", m.ssm},
                       {"--ctx-size", std::to_string(m.context)},
                       {"--chunk", std::to_string(m.chunk)},
                       {"--exact", m.exact ? "true" : "false"},
                       {"--tp", std::to_string(division.tp)},
                       {"--pp", std::to_string(division.pp)},
                       {"--ep", std::to_string(division.ep)}};
  add_given(cli, words);
  return words;
}

}  // namespace

int RanksArgs::start(ModelArgs& model, const Cli& cli, const std::vector<std::string>& models,
                     const std::function<int()>& body) const {
  const int size = count();
  if (size == 1 && !collectives.empty()) fail("--times", {.what = "one rank sends nothing", .hint = "--tp 2"});
  if (size == 1) return body();
  const models::Division division{.tp = tp, .pp = pp, .ep = ep};
  if (!model.adapter.empty())
    fail("--adapter",
         {.what = "is supported on one rank only", .got = printable(model.adapter), .hint = "braid merge, first"});
  if (model.zeros == "skip")
    fail("--zeros", {.what = "ranks multiply by all values", .got = model.zeros, .expected = "auto or multiply"});
  for (const std::string& name : models) models::check_parts(models::find_weights(name), division);
  int code = 0;
  const auto on_rank = [&](comm::Group& world) {
    const Silence silence(world.rank() > 0);
    engine::Ranks shared(world, division);
    if (model.threads == 0) model.threads = std::max<int64_t>(1, sys::default_threads() / shared.on_this_machine());
    model.ranks = &shared;
    code = body();
    model.ranks = nullptr;
  };
  start_of_ranks.run(size, words_of(model, division, cli), collectives, on_rank);
  return code;
}

}  // namespace braid::apps
