#include "apps/ranks_args.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "comm/mpi.h"
#include "comm/shm.h"
#include "models/load_part.h"
#include "models/presets.h"
#include "sys/error.h"
#include "sys/parallel.h"

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
}

// Of the ranks that there are, or are to be started.
int RanksArgs::count() const {
  const models::Division division{.tp = tp, .pp = pp, .ep = ep};
  const int64_t started = comm::ranks_of_mpirun(), needed = division.ranks();
  for (const auto& [flag, value] : {std::pair("--tp", tp), {"--pp", pp}, {"--ep", ep}, {"their product", needed}})
    check_range(flag, value, 1, kRanksMost);
  check_range("--ranks", ranks, 0, kRanksMost);
  const int64_t given = started > 0 ? started : ranks > 0 ? ranks : needed;
  if (started > 0 && ranks > 0 && ranks != started)
    fail("--ranks",
         {.what = "is not what mpirun started", .got = std::to_string(ranks), .expected = std::to_string(started)});
  if (given == needed) return static_cast<int>(given);
  fail("--ranks", {.what = "is not what --tp, --pp and --ep divide the model among",
                   .got = std::to_string(given),
                   .expected = std::to_string(needed),
                   .hint = fmt::format("{} {}",
                                       needed == 1   ? "--tp"
                                       : started > 0 ? "mpirun -np"
                                                     : "--ranks",
                                       needed == 1 ? given : needed)});
}

int RanksArgs::start(ModelArgs& model, const std::vector<std::string>& models, const std::function<int()>& body) const {
  const int size = count();
  if (size == 1) return body();
  const models::Division division{.tp = tp, .pp = pp, .ep = ep};
  if (!model.adapter.empty())
    fail("--adapter", {.what = "is of one rank", .got = printable(model.adapter), .hint = "braid merge, first"});
  for (const std::string& name : models) models::check_parts(models::find_weights(name), division);
  const comm::Options options{.timeout = std::chrono::hours(1), .per_node = comm::node_ranks_of_mpirun(size)};
  int code = 0;
  const auto on_rank = [&](comm::Group& world) {
    const Silence silence(world.rank() > 0);
    engine::Ranks shared(world, division);
    if (model.threads == 0) model.threads = std::max<int64_t>(1, sys::default_threads() / shared.on_this_machine());
    model.ranks = &shared;
    code = body();
    model.ranks = nullptr;
  };
  comm::ranks_of_mpirun() > 0 ? comm::run_under_mpi(options, on_rank) : comm::run_in_processes(size, options, on_rank);
  return code;
}

}  // namespace braid::apps
