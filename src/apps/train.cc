// braid train: a recipe, run.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "apps/commands.h"
#include "apps/graph_plan.h"
#include "apps/model_args.h"
#include "apps/ranks_args.h"
#include "apps/recipe_paths.h"
#include "apps/train_plan.h"
#include "apps/train_words.h"
#include "comm/group.h"
#include "comm/same_words.h"
#include "data/reading.h"
#include "report/progress.h"
#include "sys/check.h"
#include "sys/error.h"
#include "sys/interrupt.h"
#include "sys/machine.h"
#include "train/graph_tasks.h"
#include "train/grid_nodes.h"
#include "train/language.h"
#include "train/origin.h"
#include "train/recipe.h"
#include "train/trainer.h"

namespace braid::apps {
namespace {

namespace fs = std::filesystem;

struct TrainArgs {
  std::string recipe, resume;
  std::vector<std::string> overrides;
  int64_t threads = 0, ranks = 0;
  StartArgs start;
  bool dry_run = false, json = false, force = false;
};

// The checkpoint to go on from; empty: from the beginning. That of another run would set the checkpoints in `out` aside
// and replace the model there.
std::string resume_from(const TrainArgs& o, const train::Recipe& recipe) {
  if (!o.resume.empty() && o.resume != "auto") train::check_checkpoint(o.resume);
  const auto all = train::list_checkpoints(recipe.out);
  if (o.resume == "auto") return all.empty() ? "" : all.back().string();
  if (all.empty() || (o.force && !o.resume.empty())) return o.resume;
  std::error_code ignored;
  const fs::path others = fs::path(o.resume) / "..";
  if (!o.resume.empty() && (!fs::exists(others, ignored) || fs::equivalent(others, all[0] / "..", ignored)))
    return o.resume;
  const std::string held = fmt::format("holds a run of {}", all.back().filename().string());
  fail(printable(recipe.out),
       {.what = o.resume.empty() ? held : fmt::format("{}, and {} is of another", held, printable(o.resume)),
        .hint = o.resume.empty() ? "--resume auto, or another out" : "another out, or --force to go on here instead"});
}

// A closed terminal or pipe (`| tee`, which the same Ctrl-C ends) must not end a run before it saves.
void say(const std::string& line) {
  if (std::fputs((line + "\n").c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return;
  const int problem = errno;
  const bool closed = problem == EIO || problem == EPIPE;
  // The signal may be on its way. After one that was caught this would be the second, which ends the process.
  if (closed && sys::caught_signal() == 0) std::raise(SIGHUP);
  if (closed && sys::caught_signal() == 0) std::raise(SIGTERM);  // the caller ignores SIGHUP
  if (sys::caught_signal() == 0)
    fail_environment("standard output", {.what = "cannot be written", .got = std::strerror(problem)});
}

// With --json: one object per line on standard output, everything else on standard error.
train::Watcher printer(const TrainArgs& o, report::Progress& progress) {
  const auto line = [&o, &progress](const auto& log) {
    progress.wipe();
    say(o.json ? train::json_of(log) : train::line_of(log));
  };
  return {.progress = [&progress](int64_t done) { progress.at(done); }, .step = line, .held_out = line, .saved = line};
}

// Resumes from a checkpoint; prints each difference that --force overrides.
void resume(const TrainArgs& o, train::Trainer& trainer, const std::string& from) {
  if (from.empty()) return;
  for (const std::string& other : trainer.resume(from, o.force)) fmt::print(stderr, "--force: {}\n", other);
}

// Trains to the last step or a signal; `tell` prints what is known before the first step.
template <class Tell>
int train_objective(const TrainArgs& o, const train::Recipe& recipe, train::Objective& objective, Ctx& ctx,
                    train::Mesh* mesh, const std::string& from, const Tell& tell) {
  if ((!mesh || mesh->first()) && train::measures_roof(objective.masters()))
    report::status("measuring what this machine can do");
  train::Trainer trainer(recipe, objective, ctx, mesh);
  if (mesh && !mesh->first()) {  // silent: all ranks would say the same
    if (!from.empty()) trainer.resume(from, o.force);
    sys::catch_requests_to_stop();
    sys::end_at_second_interrupt();
    trainer.train({});
    return 0;
  }
  resume(o, trainer, from);
  sys::catch_requests_to_stop();
  sys::end_at_second_interrupt();
  std::signal(SIGPIPE, SIG_IGN);
  std::FILE* const words = o.json ? stderr : stdout;
  tell(words);
  tell_resumption(recipe, o.resume == "auto", from, trainer.progress().step, words);
  if (const int64_t window = recipe.spike.window; recipe.steps > window)
    fmt::print(words, "in brackets behind a loss, from step {} on: its deviations from the mean of the {} before\n",
               window + 1, window);
  if (const int64_t done = trainer.progress().step; done == recipe.steps)
    fmt::print(words, "already done at step {} of {}; a larger steps goes on\n", done, recipe.steps);
  if (train::generates(recipe)) report::status("drawing the answers of the first step");
  report::Progress progress("training", recipe.steps);
  const train::Outcome outcome = trainer.train(printer(o, progress));
  if (outcome == train::Outcome::finished) {
    fmt::print(words, "{} is in {}\n", recipe.lora.rank > 0 ? "the adapter" : "the model", printable(recipe.out));
    for (const std::string& line : objective.results()) fmt::print(words, "{}\n", line);
    return 0;
  }
  std::fputs(fmt::format("stopped after step {}; --resume auto goes on\n", trainer.progress().step).c_str(), stderr);
  const int signal = sys::caught_signal();
  return 128 + (signal > 0 ? signal : SIGTERM);  // another rank's, which ended the answers of a step
}

// Draws how far the data is read.
data::Reading reading_bar() {
  auto bar = std::make_shared<std::optional<report::Progress>>();
  return [bar](const std::string& file, int64_t done, int64_t total) {
    if (done == 0) bar->emplace("reading " + printable(file), total);
    (*bar)->at(done);
    if (done == total) bar->reset();
  };
}

// On this rank of `world`; null: there is no other.
int train_rank(const TrainArgs& o, const train::Recipe& recipe, const std::string& from, comm::Group* world) {
  std::optional<train::Mesh> mesh;
  if (world) mesh.emplace(recipe, *world);
  Arena arena;
  Ctx ctx{.arena = arena};
  if (o.threads > 0) ctx.threads = static_cast<int>(o.threads);
  if (o.threads == 0 && world) ctx.threads = std::max(1, ctx.threads / world->on_this_machine());
  if (recipe.objective == "graph") {
    const std::unique_ptr<train::Objective> graph = with_paths_of(recipe, [&]() -> std::unique_ptr<train::Objective> {
      if (mesh) return std::make_unique<train::GridNodes>(recipe, *world);
      return train::graph_objective(recipe);
    });
    if (!mesh) train::need_graph_memory(recipe, *graph);
    return train_objective(o, recipe, *graph, ctx, mesh ? &*mesh : nullptr, from, [&](std::FILE* words) {
      if (mesh) fmt::print(words, "{} ranks, {} threads each\n", mesh->ranks(), ctx.threads);
      for (const std::string& line : train::idle_words(recipe)) fmt::print(stderr, "{}\n", line);
      for (const std::string& line : graph->describe()) fmt::print(words, "{}\n", line);
    });
  }
  train::Mesh* shared = mesh ? &*mesh : nullptr;
  const data::Reading reading = !shared || shared->first() ? reading_bar() : nullptr;
  train::Language language = with_paths_of(recipe, [&] { return train::Language(recipe, ctx, shared, reading); });
  return train_objective(o, recipe, language, ctx, shared, from, [&](std::FILE* words) {
    if (shared) fmt::print(words, "{} ranks, {} threads each\n", shared->ranks(), ctx.threads);
    tell_language(recipe, language, words);
  });
}

// Of the run: folders of `out` may lie elsewhere on other machines. CPUs of other classes round updates of the same
// weights differently.
comm::Words words_of(const TrainArgs& o, const train::Recipe& recipe, const std::string& from) {
  comm::Words words = train::words_of(recipe);
  std::erase_if(words, [](const auto& word) { return word.first == "out"; });
  words.emplace_back("--resume", std::filesystem::path(from).filename().string());
  words.emplace_back("--force", o.force ? "true" : "false");
  words.emplace_back("CPU class", sys::name_of(sys::machine().cpu_class));
  return words;
}

int train_ranks(const TrainArgs& o, const train::Recipe& recipe, const std::string& from, int ranks) {
  const std::string& collectives = recipe.parallel.collectives;
  if (ranks == 1) {
    if (!collectives.empty()) fmt::print(stderr, "[parallel.collectives] one rank sends nothing: unused\n");
    return train_rank(o, recipe, from, nullptr);
  }
  int code = 0;
  o.start.run(ranks, words_of(o, recipe, from), collectives,
              [&](comm::Group& world) { code = train_rank(o, recipe, from, &world); });
  return code;
}

int train_command(const TrainArgs& o) {
  if (o.threads < 0 || o.threads > 1024)
    fail("--threads", {.what = "out of range", .got = std::to_string(o.threads), .expected = "0 to 1024"});
  if (o.dry_run) refuse_unread("--dry-run", {{"--resume", !o.resume.empty()}, {"--force", o.force}});
  const train::Recipe recipe = train::read_recipe(o.recipe, o.overrides);
  const bool graph = recipe.objective == "graph";
  const int ranks = std::max(1, o.start.given(o.ranks));
  train::check_mesh(recipe, ranks);
  if (ranks > 1 && !graph) with_paths_of(recipe, [&] { train::check_cut(recipe); });
  if (o.dry_run) {
    with_paths_of(recipe, [&] { graph ? print_graph_plan(recipe, o.json) : print_train_plan(recipe, ranks, o.json); });
    return 0;
  }
  if (o.force && o.resume.empty())
    fail("--force", {.what = "applies only with --resume", .hint = "--resume auto --force"});
  const std::string from = resume_from(o, recipe);
  train::check_out(recipe);
  return train_ranks(o, recipe, from, ranks);
}

}  // namespace

Action setup_train(Cli& cli) {
  auto o = std::make_shared<TrainArgs>();
  cli.positional("recipe", o->recipe, "TOML: model, data, optimizer, schedule and more; --dry-run lists every key");
  cli.rest("key=value", o->overrides, "keys of the recipe, as in optimizer.lr=1e-3");
  cli.flag("--dry-run", o->dry_run, "only print the resolved recipe, parameters, memory and FLOPs");
  cli.flag("--json", o->json, "the log as JSON, one object per line; with --dry-run, the plan");
  cli.option("--resume FOLDER", o->resume, "resume from a checkpoint; auto: the last one in out, if there is one");
  cli.flag("--force", o->force, "resume although the checkpoint belongs to a run with other keys or data");
  cli.option("--ranks", o->ranks, "processes that share the run ([parallel]); also: mpirun -np N braid train ...");
  o->start.declare(cli);
  cli.option("-t,--threads", o->threads, "0: all cores, divided among ranks; the result does not depend on it");
  cli.prints("loss", "nats per trained token; in brackets its deviations from recent steps");
  cli.prints("..._loss", "its other parts: prediction block, balance of experts, z-losses");
  cli.prints("load_balance", "tokens of the busiest expert over the mean of all");
  cli.prints("norm, lr", "of the gradients before clipping; learning rate");
  cli.prints("tok/s, mfu", "of this step; share of the machine's measured peak");
  cli.prints("MiB", "the most memory that the process has had");
  cli.prints("held out", "loss on data that training does not see");
  return [o] { return train_command(*o); };
}

}  // namespace braid::apps
