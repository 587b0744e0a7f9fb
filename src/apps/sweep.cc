#include "apps/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "apps/recipe_paths.h"
#include "io/atomic_file.h"
#include "io/atomic_folder.h"
#include "report/progress.h"
#include "sys/error.h"
#include "sys/interrupt.h"
#include "train/language.h"
#include "train/trainer.h"

namespace braid::apps {
namespace {
namespace fs = std::filesystem;

train::Recipe trunk_to(const SweepSpec& spec, const SweepShape& shape, int64_t step) {
  train::Recipe r = shaped(spec, shape);
  r.steps = step;
  r.out = (spec.dir / shape.name() / fmt::format("trunk-{:08}", step)).string();
  return r;
}

train::Recipe branch_of(const SweepSpec& spec, const SweepBranch& branch) {
  train::Recipe r = shaped(spec, branch.row.shape);
  r.steps = branch.row.steps;
  r.schedule.decay = branch.row.steps - branch.begin;
  r.eval.every = r.steps;
  r.out = branch.folder(spec.dir).string();
  return r;
}

// The last checkpoint of a run, if it is that of this step.
std::optional<fs::path> finished(const fs::path& out, int64_t step) {
  const std::vector<fs::path> all = train::list_checkpoints(out);
  if (all.empty() || all.back().filename() != fmt::format("step-{:08}", step)) return std::nullopt;
  return all.back();
}

// The end of a part of the trunk; step 0 is the beginning, without a checkpoint.
struct TrunkEnd {
  fs::path checkpoint{};
  int64_t step = 0;
};

// The last one that does not lie behind `step`.
TrunkEnd nearest_trunk(const SweepSpec& spec, const SweepShape& shape, int64_t step) {
  constexpr std::string_view kTrunk = "trunk-";
  TrunkEnd best;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(spec.dir / shape.name(), none)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kTrunk)) continue;
    const int64_t at = std::strtoll(name.c_str() + kTrunk.size(), nullptr, 10);
    if (at > step || at <= best.step) continue;
    if (const auto checkpoint = finished(entry.path(), at)) best = {.checkpoint = *checkpoint, .step = at};
  }
  return best;
}

struct RunOutcome {
  bool finished = false;
  int64_t tokens = 0;
  double loss = std::numeric_limits<double>::quiet_NaN(), floor = 0;
  double seconds_per_token = 0;
};

// To the last step of the recipe: from its own last checkpoint, otherwise from `from`, otherwise from random weights.
RunOutcome run_to_end(const train::Recipe& recipe, const fs::path& from, Ctx& ctx,
                      const std::function<void(double flops)>& progress) {
  train::Language language = with_paths_of(recipe, [&] { return train::Language(recipe, ctx); });
  train::Trainer trainer(recipe, language, ctx);
  const std::vector<fs::path> own = train::list_checkpoints(recipe.out);
  if (const fs::path start = own.empty() ? from : own.back(); !start.empty()) trainer.resume(start);
  RunOutcome outcome;
  double seconds = 0, tokens = 0;
  train::Watcher watcher;
  watcher.held_out = [&](const train::HeldOutLog& log) { outcome.loss = log.loss; };
  watcher.step = [&](const train::StepLog& log) {
    const auto read = static_cast<double>(language.tokens());
    seconds += read / log.tokens_per_second;
    tokens += read;
    progress(read * language.flops_per_token());
  };
  outcome.finished = trainer.train(watcher) == train::Outcome::finished;
  outcome.tokens = trainer.progress().tokens;
  outcome.floor = language.entropy_floor().value_or(0);
  if (tokens > 0) outcome.seconds_per_token = seconds / tokens;
  return outcome;
}

// The branch, and before it the trunk up to there. None after a signal (sys/interrupt.h).
std::optional<SweepRow> train_branch(const SweepSpec& spec, const SweepBranch& branch, Ctx& ctx,
                                     const std::function<void(double flops)>& progress) {
  fs::create_directories(spec.dir / branch.row.shape.name());
  const TrunkEnd before = nearest_trunk(spec, branch.row.shape, branch.begin);
  const train::Recipe trunk = trunk_to(spec, branch.row.shape, branch.begin);
  if (before.step < branch.begin && !run_to_end(trunk, before.checkpoint, ctx, progress).finished) return std::nullopt;
  const train::Recipe recipe = branch_of(spec, branch);
  // A branch that was killed between its last step and its row has lost its loss.
  if (finished(recipe.out, recipe.steps)) io::remove_folder(recipe.out);
  const RunOutcome done = run_to_end(recipe, *finished(trunk.out, trunk.steps), ctx, progress);
  if (!done.finished) return std::nullopt;
  if (!std::isfinite(done.loss))
    throw Error(Fault::failed_run, format_message(printable(recipe.out), {.what = "the held-out loss is not finite"}));
  SweepRow row = branch.row;
  row.flops *= static_cast<double>(done.tokens) / row.tokens;
  row.tokens = static_cast<double>(done.tokens);
  row.loss = done.loss;
  row.floor = done.floor;
  row.seconds = row.tokens * done.seconds_per_token;
  io::write_text_file(fs::path(recipe.out) / kSweepRow, json_of(row) + "\n");
  return row;
}

}  // namespace

bool stands(const SweepSpec& spec, const SweepBranch& branch) {
  return fs::exists(branch.folder(spec.dir) / kSweepRow);
}

int64_t steps_left(const SweepSpec& spec, const Branches& branches) {
  int64_t steps = 0, trunk = 0;
  for (const SweepBranch& branch : branches) {
    if (stands(spec, branch)) continue;
    trunk = std::max(trunk, nearest_trunk(spec, branch.row.shape, branch.begin).step);
    steps += branch.begin - trunk + branch.row.steps - branch.begin;
    trunk = branch.begin;
  }
  return steps;
}

int train_grid(const SweepSpec& spec, const std::vector<Branches>& grid, int64_t threads, const fs::path& table,
               const std::function<void(const SweepRow&)>& told) {
  double left = 0, done = 0;
  for (const Branches& branches : grid)
    left += static_cast<double>(steps_left(spec, branches)) * flops_per_step(branches);
  constexpr double kUnit = 1e6;  // FLOPs of the bar
  report::Progress progress("sweep", std::max<int64_t>(1, static_cast<int64_t>(left / kUnit)));
  const auto tell = [&](double flops) { progress.at(static_cast<int64_t>((done += flops) / kUnit)); };
  const auto write_table = [&] { io::write_text_file(table, csv_of(rows_in(spec.dir))); };
  write_table();  // of the rows that stand
  int code = 0;
  const auto train_one = [&](const SweepBranch& branch) {
    Arena arena;
    Ctx ctx{.arena = arena};
    if (threads > 0) ctx.threads = static_cast<int>(threads);
    const std::optional<SweepRow> row = train_branch(spec, branch, ctx, tell);
    progress.wipe();
    if (!row) return false;
    write_table();
    told(*row);
    return true;
  };
  for (const Branches& branches : grid) {
    try {
      for (const SweepBranch& branch : branches) {
        if (stands(spec, branch) || train_one(branch)) continue;
        fmt::print(stderr, "stopped; the same command goes on\n");
        return 128 + sys::caught_signal();
      }
    } catch (const Error& error) {  // later branches of the run begin where this one failed
      if (error.fault() != Fault::failed_run) throw;
      progress.wipe();
      fmt::print(stderr, "warning: {} is left out: {}\n", branches.front().row.shape.name(), error.what());
      code = error.exit_code();
    }
  }
  return code;
}

double step_seconds(const SweepSpec& spec, const SweepShape& shape, Ctx& ctx) {
  constexpr int64_t kSteps = 4;  // the first makes the memory ready
  const io::AtomicFolder place(fs::temp_directory_path() / "braid-sweep");
  train::Recipe recipe = shaped(spec, shape);
  recipe.steps = kSteps;
  recipe.schedule.warmup = 0;
  recipe.out = (place.place() / "run").string();
  train::Language language = with_paths_of(recipe, [&] { return train::Language(recipe, ctx); });
  train::Trainer trainer(recipe, language, ctx);
  double best = std::numeric_limits<double>::infinity();
  train::Watcher watcher;
  watcher.step = [&](const train::StepLog& log) {
    best = std::min(best, static_cast<double>(language.tokens()) / log.tokens_per_second);
  };
  trainer.train(watcher);
  return best;
}

}  // namespace braid::apps
