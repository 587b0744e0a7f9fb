// braid train: a recipe, run.
#include <fmt/format.h>

#include "apps/commands.h"
#include "apps/train_plan.h"
#include "io/atomic_folder.h"
#include "report/progress.h"
#include "sys/error.h"
#include "sys/interrupt.h"
#include "train/session.h"

namespace braid::apps {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string recipe, resume;
  std::vector<std::string> overrides;
  int64_t threads = 0;
  bool dry_run = false, json = false;
};

// The checkpoint to go on from; empty: from the beginning.
std::string resume_from(const Options& o, const train::Recipe& recipe) {
  const fs::path out(recipe.out);
  const auto all = train::list_checkpoints(out);
  if (o.resume == "auto") return all.empty() ? "" : all.back().string();
  if (!o.resume.empty()) return o.resume;
  if (!all.empty()) {
    fail(printable(recipe.out), {.what = fmt::format("holds a run of {}", all.back().filename().string()),
                                 .hint = "--resume auto, or another out"});
  }
  return "";
}

int train_command(const Options& o) {
  if (o.threads < 0 || o.threads > 1024)
    fail("--threads", {.what = "out of range", .got = std::to_string(o.threads), .expected = "0 to 1024"});
  const train::Recipe recipe = train::read_recipe(o.recipe, o.overrides);
  if (o.dry_run) {
    print_train_plan(recipe, o.json);
    return 0;
  }
  const std::string from = resume_from(o, recipe);
  Arena arena;
  Ctx ctx{.arena = arena};
  if (o.threads > 0) ctx.threads = static_cast<int>(o.threads);
  train::Session session(recipe, ctx);
  train::Trainer trainer(session.run(), ctx);
  if (!from.empty()) trainer.resume(from);
  sys::catch_requests_to_stop();
  for (const std::string& note : session.data().notes()) fmt::print(stderr, "{}\n", note);
  if (session.precision()) fmt::print("{}\n", session.precision()->describe());
  if (session.masters().adapters())
    fmt::print("{} parameters train in {} adapters\n", session.masters().trained(),
               session.masters().adapters()->sites().size());
  if (const auto floor = session.data().entropy_floor()) fmt::print("entropy floor {:.4f}\n", *floor);
  report::Progress progress("training", recipe.steps);
  const train::Outcome outcome = trainer.train([&](const train::StepLog& log) {
    progress.wipe();
    fmt::print("{}\n", train::line_of(log));
    std::fflush(stdout);
    progress.at(log.step);
  });
  if (outcome == train::Outcome::finished) return 0;
  fmt::print(stderr, "stopped after step {}; --resume auto goes on\n", trainer.progress().step);
  return outcome == train::Outcome::interrupted ? 130 : 0;
}

}  // namespace

Action setup_train(Cli& cli) {
  auto o = std::make_shared<Options>();
  cli.positional("recipe", o->recipe, "TOML: model, data, optimizer, schedule and more; --dry-run lists every word");
  cli.rest("key=value", o->overrides, "words of the recipe, as in optimizer.lr=1e-3");
  cli.flag("--dry-run", o->dry_run, "print the resolved recipe, parameters, memory and FLOPs, and stop");
  cli.flag("--json", o->json, "of a dry run");
  cli.option("--resume FOLDER", o->resume, "go on from a checkpoint; auto: the last one in out, if there is one");
  cli.option("-t,--threads", o->threads, "0: one a core; the result does not depend on it");
  return [o] { return train_command(*o); };
}

}  // namespace braid::apps
