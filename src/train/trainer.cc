#include "train/trainer.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <optional>
#include <string_view>
#include <utility>

#include "sys/error.h"
#include "sys/interrupt.h"
#include "sys/roofs.h"
#include "train/agreement.h"
#include "train/origin.h"
#include "train/schedule.h"
#include "train/spike.h"
#include "train/weight_hash.h"

namespace braid::train {
namespace {

// Up to this size the second that measuring takes is long compared with the steps.
constexpr int64_t kToy = 1'000'000;  // parameters

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

int64_t memory_peak() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;  // Linux counts in KiB
}

double measured_roof(const models::MasterWeights& masters) {
  return measures_roof(masters) ? sys::product_roof(masters.products() == DType::bf16) : 0;
}

const Recipe& checked(const Recipe& recipe) {
  check_offload(recipe);
  check_merge(recipe);
  return recipe;
}

// A different run differs in most words: the first few are enough to see that.
[[noreturn]] void refuse_differences(const std::filesystem::path& checkpoint, const std::vector<std::string>& others) {
  constexpr int64_t kShown = 5;
  const int64_t shown = std::min(kShown, std::ssize(others)), more = std::ssize(others) - shown;
  fail(printable(checkpoint.string()),
       {.what = fmt::format("does not match the recipe: {}{}", fmt::join(others.begin(), others.begin() + shown, ", "),
                            more > 0 ? fmt::format(", and {} more", more) : ""),
        .hint = "the recipe it was written with, training/recipe.toml, or --force"});
}

// Where the run that wrote a checkpoint was then; nullopt: that is not known.
std::optional<std::filesystem::path> former_out(const std::filesystem::path& checkpoint) {
  try {
    return read_recipe(checkpoint / "training" / "recipe.toml", {}).out;
  } catch (const Error&) {  // of another version, which matters no more than that it is of another run
    return std::nullopt;
  }
}

// Paths are compared as seen from `out`, from the run that holds the checkpoint, as where all of it was moved, or from
// where that was then, as for files that stayed.
std::vector<std::string> differences_from(const std::filesystem::path& checkpoint, const Recipe& recipe,
                                          const Facts& facts) {
  std::vector<std::string> list = manifest_differences(checkpoint, manifest_of(recipe, facts, recipe.out));
  const auto run =
      (std::filesystem::absolute(checkpoint) / "").lexically_normal().parent_path().parent_path().parent_path();
  for (const auto& place : {std::optional(run), former_out(checkpoint)}) {
    if (list.empty() || !place) continue;
    std::vector<std::string> other = manifest_differences(checkpoint, manifest_of(recipe, facts, *place));
    if (other.size() < list.size()) list = std::move(other);
  }
  return list;
}

}  // namespace

bool measures_roof(const models::MasterWeights& masters) { return masters.size() > kToy; }

Trainer::Trainer(const Recipe& recipe, Objective& objective, Ctx& ctx, Mesh* mesh)
    : recipe_(checked(recipe)),
      objective_(objective),
      ctx_(ctx),
      mesh_(mesh),
      params_(objective.params()),
      optimizer_(recipe.optimizer, objective.masters(), params_, own_elements(), mesh ? mesh->matrices() : nullptr),
      mean_(recipe.ema_decay, objective.masters().values(), own_values()),
      checkpoints_(recipe, objective, leads()),
      facts_(objective.facts()),
      roof_flops_(leads() ? measured_roof(objective.masters()) : 0) {}

std::vector<Range> Trainer::own_elements() const {
  if (mesh_) return mesh_->own(objective_.masters());
  return {{0, objective_.masters().size()}};
}

std::vector<Range> Trainer::own_values() const {
  if (mesh_ && mesh_->divides_weights()) return own_elements();
  return {{0, objective_.masters().size()}};
}

// A rank that cannot read its files must not leave the others waiting for it in the first step.
std::vector<std::string> Trainer::resume(const std::filesystem::path& checkpoint, bool force) {
  std::vector<std::string> others;
  const auto together = [&](auto&& work) {
    std::optional<Error> problem;
    try {
      work();
    } catch (const Error& error) {
      problem = error;
    } catch (const std::exception& error) {  // of the file system or memory
      problem = Error(Fault::environment, format_message(printable(checkpoint.string()), {.what = error.what()}));
    }
    if (mesh_) return agree(mesh_->world(), problem);
    if (problem) throw Error(*problem);
  };
  together([&] {
    try {
      others = differences_from(checkpoint, recipe_, facts_);
      if (!others.empty() && !force) refuse_differences(checkpoint, others);
      progress_ = checkpoints_.load(checkpoint, arrays());
    } catch (const Error& error) {
      checkpoints_.refuse(error, checkpoint);
    }
  });
  together([&] { checkpoints_.go_on_from(checkpoint, progress_.step); });
  if (checkpoints_.owns(checkpoint)) saved_ = progress_.step;
  return others;
}

Outcome Trainer::train(const Watcher& watcher) {
  const Recipe& r = recipe_;
  watcher_ = &watcher;
  async_ = r.checkpoint.async;
  if (leads()) log_ = std::make_unique<Log>(r.out, r.log, progress_.step);
  const auto due = [&](int64_t every) { return every > 0 && progress_.step % every == 0; };
  const int64_t first = progress_.step + 1;  // is logged too: a run that is silent for minutes looks stuck
  const auto one = [&] {
    StepLog done = step();
    if (due(r.log.hash_every)) settle();
    if (due(r.log.hash_every)) done.weight_hash = weight_hash(objective_.masters().values(), ctx_.threads);
    const bool logged = due(r.log.every) || progress_.step == first || progress_.step == r.steps;
    if (log_) log_->step(done, logged);
    if (watcher.step && logged) watcher.step(done);
    if (watcher.progress) watcher.progress(progress_.step);
    if (due(r.eval.every) && objective_.holds_out()) {
      const HeldOutLog held = held_out();
      if (log_) log_->held_out(held);
      if (watcher.held_out) watcher.held_out(held);
    }
    tell_saved(false);
    if (due(r.checkpoint.every) && progress_.step < r.steps) save();
  };
  try {
    while (progress_.step < r.steps && !should_stop()) one();
  } catch (const sys::Interrupted&) {  // of a step that has not begun
  }
  tell_saved(true);
  async_ = false;  // nothing is left to do meanwhile
  settle();
  save();
  const bool finished = progress_.step == r.steps;
  if (finished && mean_.kept()) write_mean();
  if (finished && r.checkpoint.merge > 1) write_merged();
  return finished ? Outcome::finished : Outcome::stopped;
}

void Trainer::write_mean() {
  if (!divides()) {
    if (leads()) checkpoints_.write(mean_.values(), "ema");
    return;
  }
  if (!gathers_ && checkpoints_.write_shared(mesh_->world(), arrays().mean, written(), "ema")) return;
  const std::vector<float> mean =
      mesh_->assemble(objective_.masters(), objective_.whole(), mean_.values(), mesh_->divides_weights());
  if (leads()) checkpoints_.write(mean, "ema");
}

void Trainer::write_merged() {
  const int64_t count = recipe_.checkpoint.merge;
  if (divides() && !gathers_ && checkpoints_.merge_shared(mesh_->world(), written(), count)) return;
  if (leads()) checkpoints_.merge(objective_.whole(), count);
}

// All ranks stop after the same step: when the first one got a signal.
bool Trainer::should_stop() {
  const bool own = sys::caught_signal() != 0;
  return mesh_ ? mesh_->add_up_all(mesh_->first() && own ? 1.0 : 0.0) > 0 : own;
}

// The rows of the next step. What cannot go on is saved: environments of rollouts fail in the middle of a run.
int64_t Trainer::draw() {
  try {
    return objective_.draw(progress_.step, false);
  } catch (const CommonError&) {
    save_at_an_error();
    if (mesh_ && !leads()) mesh_->barrier();  // the first rank reports it
    throw;
  } catch (const Error&) {
    if (!mesh_) save_at_an_error();
    throw;
  }
}

// Of all ranks. What copies of the process write is complete before this one ends.
void Trainer::save_at_an_error() {
  async_ = false;
  tell_saved(true);
  if (progress_.step > 0) save();
}

StepLog Trainer::step() {
  const auto begin = Clock::now();
  const double waited = mesh_ ? mesh_->waited() : 0;
  models::MasterWeights& masters = objective_.masters();
  const int64_t rows = draw(), tokens = objective_.tokens();
  sums_.clear();
  masters.zero_grads(ctx_.threads);
  if (mesh_) mesh_->begin_gradients(masters, sums_);
  parts(rows, true);
  mesh_ ? mesh_->end_gradients(masters, sums_, ctx_.threads) : masters.sum_uses(ctx_.threads);
  objective_.complete(sums_);
  StepLog log{.step = progress_.step + 1, .steps = recipe_.steps, .loss = sums_.mean("loss")};
  if (!std::isfinite(log.loss)) give_up("the loss");
  const auto squares = [&](const Range& of) { return optimizer_.squared_norm(ctx_, of); };
  log.grad_norm = std::sqrt(mesh_ ? mesh_->squared_norm(masters, squares) : squares({0, masters.size()}));
  if (!std::isfinite(log.grad_norm)) give_up("the norm of the gradients");

  log.empty = sums_.count("loss") == 0;
  log.skipped = log.empty || stands_out(log);
  log.lr = learning_rate(recipe_.schedule, recipe_.optimizer.lr, progress_.step, recipe_.steps);
  if (!log.skipped) {
    optimizer_.step(ctx_, ++progress_.updates, log.lr, log.grad_norm);
    if (mesh_) mesh_->gather_weights(masters, ctx_.threads);
  }
  objective_.finish(!log.skipped, sums_);
  if (mean_.kept()) settle();
  if (!log.skipped) mean_.follow(progress_.updates, masters.values(), ctx_.threads);
  progress_.tokens += tokens;
  ++progress_.step;

  log.metrics.reserve(sums_.all().size());
  for (const Sums::Sum& sum : sums_.all()) {
    const bool known = !log.empty || sum.count > 0;  // without targets: of what else was counted
    if (known && std::string_view(sum.name) != "loss") log.metrics.emplace_back(sum.name, sum.mean());
  }
  const double seconds = seconds_since(begin);
  log.tokens = progress_.tokens;
  log.tokens_per_second = static_cast<double>(tokens) / seconds;
  if (roof_flops_ > 0) log.mfu = log.tokens_per_second * objective_.flops_per_token() / roof_flops_;
  log.memory_bytes = memory_peak();
  if (mesh_) log.waited_ms = 1e3 * (mesh_->waited() - waited);
  return log;
}

// Compares the step with those before it, then adds it to them.
bool Trainer::stands_out(StepLog& log) {
  const SpikeRecipe& spike = recipe_.spike;
  SpikeWindow losses(spike.window, progress_.losses), norms(spike.window, progress_.norms);
  log.judged = losses.full();
  log.z_score = losses.z_score(log.loss);
  log.norm_z_score = norms.z_score(log.grad_norm);
  const bool skipped = (spike.z > 0 && log.z_score > spike.z) || (spike.norm_z > 0 && log.norm_z_score > spike.norm_z);
  losses.push(log.loss);
  norms.push(log.grad_norm);
  progress_.skipped = skipped ? progress_.skipped + 1 : 0;
  if (spike.patience == 0 || progress_.skipped < spike.patience) return skipped;
  fail_run(
      {.what = fmt::format("steps {} to {} were all skipped as spikes", log.step - progress_.skipped + 1, log.step),
       .expected = fmt::format("fewer than spike.patience = {}", spike.patience),
       .hint = "a lower optimizer.lr or a higher spike.z, from the last checkpoint"});
}

// Runs the drawn batch in as many parts as the recipe says, held out or not: memory was planned for that.
void Trainer::parts(int64_t rows, bool backward) {
  const int64_t parts = recipe_.accumulate;
  const Range own = mesh_ ? mesh_->rows(rows) : Range{0, rows};
  need_rows(recipe_, own.count);
  parts_.clear();
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t begin = own.count * i / parts, end = own.count * (i + 1) / parts;
    parts_.push_back({own.begin + begin, end - begin});
  }
  if (mesh_) mesh_->begin_passes();
  objective_.run_parts(ctx_, parts_, backward, sums_);
  if (mesh_) mesh_->end_passes();
}

// The first rank reports it; the others wait for the end that this brings.
void Trainer::fail_run(const Message& message) {
  if (saving_) tell_saved(true);
  if (!leads()) mesh_->barrier();
  throw Error(Fault::failed_run, format_message("train", message));
}

// The failed step changed nothing: the last checkpoint and the batch reproduce it.
void Trainer::give_up(const char* what) {
  const std::filesystem::path path =
      std::filesystem::path(recipe_.out) / fmt::format("bad-batch-{:08}.safetensors", progress_.step + 1);
  if (leads()) objective_.write_batch(path);
  fail_run({.what = fmt::format("{} of step {} is not finite; its batch is in {}", what, progress_.step + 1,
                                printable(path.string())),
            .hint = "--resume auto --force with a lower optimizer.lr"});
}

// The mean in the place of the weights, for as long as this lives: a signal may end a held-out pass, and what is saved
// then are the weights. Needs no extra memory.
class Trainer::MeanInPlace {
 public:
  explicit MeanInPlace(Trainer& trainer) : trainer_(trainer) { exchange(); }
  ~MeanInPlace() { exchange(); }
  MeanInPlace(const MeanInPlace&) = delete;
  MeanInPlace& operator=(const MeanInPlace&) = delete;

 private:
  void exchange() {
    models::MasterWeights& masters = trainer_.objective_.masters();
    trainer_.mean_.exchange(masters.values(), trainer_.ctx_.threads);
    for (const Range& own : trainer_.own_values()) masters.round(own, trainer_.ctx_.threads);
  }
  Trainer& trainer_;
};

HeldOutLog Trainer::held_out() {
  HeldOutLog log{.step = progress_.step, .loss = held_out_loss()};
  for (const Sums::Sum& sum : sums_.all()) {
    if (std::string_view(sum.name) != "loss") log.metrics.emplace_back(sum.name, sum.mean());
  }
  if (!mean_.kept()) return log;
  const MeanInPlace swapped(*this);
  log.ema_loss = held_out_loss();
  return log;
}

double Trainer::held_out_loss() {
  sums_.clear();
  const int64_t all = objective_.held_out_batches(),
                batches = all > 0 ? std::min(recipe_.eval.batches, all) : recipe_.eval.batches;
  for (int64_t i = 0; i < batches; ++i) parts(objective_.draw(i, true), false);
  if (mesh_) mesh_->add_up(sums_);
  objective_.complete(sums_);
  return sums_.mean("loss");
}

void Trainer::save() {
  if (std::exchange(saved_, progress_.step) == progress_.step) return;
  const auto begin = Clock::now();
  settle();
  if (divides()) return save_parts(begin);
  if (leads()) write(arrays(), begin);
}

// Each rank writes what is its own. Nothing of the model travels.
void Trainer::save_parts(Clock::time_point begin) {
  tell_saved(true);
  if (gathers_) return save_whole(begin);
  const Arrays own = arrays();
  const std::span<const TensorElements> parts = written();
  Saving& saving = saving_.emplace();
  saving.log.step = progress_.step;
  saving.folder =
      checkpoints_.begin(mesh_->world(), own, progress_, recipe_, manifest_of(recipe_, facts_, recipe_.out));
  if (const int blind = saving.folder->blind(); blind >= 0) {
    gathers_ = true;
    saving_.reset();
    tell({.step = progress_.step, .blind = blind});
    return save_whole(begin);
  }
  const auto save = [&] { checkpoints_.write_parts(*saving.folder, own, parts); };
  if (async_) saving.uncopied = writer_.start(save);
  if (!async_ || !saving.uncopied.empty()) {
    saving.done = true;
    try {
      save();
    } catch (const Error& error) {
      saving.problem = error;
    }
    saving.log.written = seconds_since(begin);
  }
  saving.log.paused = seconds_since(begin);
  if (log_) log_->draw();
  if (!async_) finish_parts(true);
}

// When all ranks have written, the checkpoint gets its name.
void Trainer::finish_parts(bool wait) {
  Saving& now = *saving_;
  try {
    if (const std::optional<ForkedWriter::Ended> ended = now.done ? std::nullopt : writer_.finished(wait)) {
      now.done = true;
      now.log.written = ended->seconds;
      now.lost = ended->lost;
    }
  } catch (const Error& error) {
    now.done = true;
    now.problem = error;
  }
  if (!wait && mesh_->add_up_all(now.done ? 1 : 0) < mesh_->ranks()) return;
  comm::Group& world = mesh_->world();
  Saving saving = std::move(*saving_);
  saving_.reset();
  agree(world, saving.problem);
  const std::optional<Told> lost = first_told(world, saving.lost), uncopied = first_told(world, saving.uncopied);
  if (!lost) checkpoints_.finish(*saving.folder);
  if (async_ && !lost && !uncopied) tell(saving.log);
  if (!lost && !uncopied) return;
  async_ = false;
  const Told& why = lost ? *lost : *uncopied;
  tell({.step = saving.log.step, .lost = fmt::format("rank {}: {}", why.rank, why.text)});
  if (!lost || saved_ != saving.log.step) return;
  saved_ = -1;
  save();
}

void Trainer::write(const Arrays& arrays, Clock::time_point begin) {
  const auto save = [&] { checkpoints_.save(arrays, progress_, recipe_, manifest_of(recipe_, facts_, recipe_.out)); };
  tell_saved(true);
  const std::string problem = async_ ? writer_.start(save) : "";
  if (!problem.empty()) {
    async_ = false;
    tell({.step = progress_.step, .lost = problem});
  }
  if (!async_) save();
  log_->draw();
  if (async_) writing_ = {.step = progress_.step, .paused = seconds_since(begin)};
}

// Throws what the writer could not do: a full disk ends the run at the next step. A writer that was killed, as where
// memory is short, costs a checkpoint, which a run without ranks makes up for.
void Trainer::tell_saved(bool wait) {
  if (saving_) return finish_parts(wait);
  const std::optional<ForkedWriter::Ended> ended = writer_.finished(wait);
  if (!ended) return;
  writing_.written = ended->seconds;
  writing_.lost = ended->lost;
  tell(writing_);
  if (ended->lost.empty()) return;
  async_ = false;
  if (mesh_ || saved_ != writing_.step) return;
  saved_ = -1;
  save();
}

void Trainer::tell(const SavedLog& saved) {
  if (log_) log_->saved(saved);
  if (watcher_ && watcher_->saved) watcher_->saved(saved);
}

// Of what all ranks have, where the first one alone can write.
void Trainer::save_whole(Clock::time_point begin) {
  const models::MasterWeights& masters = objective_.masters();
  const models::MasterWeights& whole = objective_.whole();
  const bool state = mesh_->divides_state(), weights = mesh_->divides_weights();
  const auto assemble = [&](std::span<const float> array, bool part) {
    return mesh_->assemble(masters, whole, array, part);
  };
  std::span<float> held = objective_.masters().values();
  sys::BigVector<float> own;
  if (weights) held = own = parts_of(held, own_values());
  std::vector<float> values = assemble(held, weights), first = assemble(optimizer_.first(), state),
                     second = assemble(optimizer_.second(), state), mean;
  if (mean_.kept()) mean = assemble(mean_.values(), weights);
  if (leads()) write({whole, {values}, {first}, {second}, {mean}}, begin);
}

Arrays Trainer::arrays() {
  models::MasterWeights& masters = objective_.masters();
  return {masters,
          {masters.values(), own_values()},
          {optimizer_.first(), own_elements(), true},
          {optimizer_.second(), own_elements(), true},
          {mean_.values(), own_values(), true}};
}

}  // namespace braid::train
