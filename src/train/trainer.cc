#include "train/trainer.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <numeric>
#include <utility>

#include "io/safetensors_write.h"
#include "kernels/router/router.h"
#include "sys/error.h"
#include "sys/interrupt.h"
#include "train/schedule.h"
#include "train/weight_hash.h"

namespace braid::train {
namespace {

int64_t memory_peak() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;  // Linux counts in KiB
}

}  // namespace

void take_rows(const data::Batch& batch, int64_t begin, int64_t end, data::Batch& out) {
  out.clear();
  const int64_t first = batch.rows[static_cast<size_t>(begin)], last = batch.rows[static_cast<size_t>(end)];
  out.ids.assign(batch.ids.begin() + first, batch.ids.begin() + last);
  out.targets.assign(batch.targets.begin() + first, batch.targets.begin() + last);
  for (Seq s : batch.seqs.seqs) {
    if (s.start < first || s.start >= last) continue;
    s.start -= first;
    out.seqs.seqs.push_back(s);
  }
  for (int64_t row = begin + 1; row <= end; ++row) out.rows.push_back(batch.rows[static_cast<size_t>(row)] - first);
  out.trained = last - first - std::count(out.targets.begin(), out.targets.end(), data::kMasked);
}

Totals totals_of(const data::Batch& batch) {
  Totals totals{.main = std::max<int64_t>(1, batch.trained), .tokens = std::ssize(batch.ids)};
  for (size_t step = 0; step < totals.mtp.size(); ++step)
    totals.mtp[step] = models::Model::mtp_targets(batch.seqs, batch.targets.data(), static_cast<int64_t>(step));
  return totals;
}

Trainer::Trainer(Run run, Ctx& ctx)
    : run_(std::move(run)),
      ctx_(ctx),
      optimizer_(run_.recipe.optimizer, run_.masters, run_.params),
      checkpoints_(run_.recipe.out, run_.recipe.checkpoint, run_.origin) {
  if (run_.recipe.ema_decay > 0) mean_.assign(run_.masters.values().begin(), run_.masters.values().end());
}

void Trainer::resume(const std::filesystem::path& checkpoint) {
  progress_ = load_checkpoint(checkpoint, arrays());
  saved_ = progress_.step;
}

Outcome Trainer::train(const std::function<void(const StepLog&)>& report) {
  const Recipe& r = run_.recipe;
  log_ = std::make_unique<Log>(r.out, r.log, progress_.step);
  const auto due = [&](int64_t every) { return every > 0 && progress_.step % every == 0; };
  while (progress_.step < r.steps && sys::caught_signal() == 0) {
    StepLog done = step();
    if (due(r.log.hash_every)) done.weight_hash = weight_hash(run_.masters.values(), ctx_.threads);
    log_->step(done);
    if (due(r.log.every) || progress_.step == r.steps) report(done);
    if (due(r.eval.every) && run_.held_out) log_->held_out(progress_.step, held_out_loss());
    if (due(r.checkpoint.every)) save();
  }
  save();
  if (progress_.step == r.steps && r.checkpoint.merge > 1) checkpoints_.merge(run_.masters, r.checkpoint.merge);
  if (progress_.step == r.steps && !mean_.empty()) checkpoints_.write(run_.masters, mean_, "ema");
  const int signal = sys::caught_signal();
  return signal == 0 ? Outcome::finished : signal == SIGINT ? Outcome::interrupted : Outcome::terminated;
}

StepLog Trainer::step() {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const Recipe& r = run_.recipe;
  run_.batch(progress_.step, batch_);
  const Totals totals = totals_of(batch_);
  LossSums sums;
  accumulate(totals, sums);
  StepLog log{.step = progress_.step + 1, .steps = r.steps, .loss = sums.main / static_cast<double>(totals.main)};
  if (!std::isfinite(log.loss)) give_up("the loss");
  log.grad_norm = optimizer_.grad_norm(ctx_);
  if (!std::isfinite(log.grad_norm)) give_up("the norm of the gradients");

  LossWindow window(r.spike.window, std::move(progress_.losses));
  log.z_score = window.z_score(log.loss);
  log.skipped = r.spike.z > 0 && log.z_score > r.spike.z;
  log.lr = learning_rate(r.schedule, r.optimizer.lr, progress_.step, r.steps);
  if (!log.skipped) {
    optimizer_.step(ctx_, ++progress_.updates, log.lr, log.grad_norm);
    window.push(log.loss);
    const auto decay = static_cast<float>(r.ema_decay);
    const std::span<const float> values = run_.masters.values();
    sys::parallel_for(ctx_.threads, std::ssize(mean_), 1024, [&](int64_t from, int64_t to) {
      for (auto i = static_cast<size_t>(from); i < static_cast<size_t>(to); ++i)
        mean_[i] += (1 - decay) * (values[i] - mean_[i]);
    });
  }
  if (run_.routers) balance(log, totals, !log.skipped);
  progress_.losses = window.losses();
  progress_.tokens += std::ssize(batch_.ids);
  ++progress_.step;

  if (r.loss.mtp_scale > 0) {
    double mean = 0;
    for (size_t i = 0; i < static_cast<size_t>(r.loss.mtp_steps); ++i)
      mean += sums.mtp[i] / static_cast<double>(std::max<int64_t>(1, totals.mtp[i]) * r.loss.mtp_steps);
    log.mtp_loss = mean;
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  log.tokens = progress_.tokens;
  log.tokens_per_second = static_cast<double>(batch_.ids.size()) / seconds;
  if (run_.roof_flops > 0) log.mfu = log.tokens_per_second * run_.flops_per_token / run_.roof_flops;
  log.memory_bytes = memory_peak();
  return log;
}

// Gradients of the whole batch, part after part.
void Trainer::accumulate(const Totals& totals, LossSums& sums) {
  const int64_t rows = std::ssize(batch_.rows) - 1, parts = run_.recipe.accumulate;
  if (parts > rows) {
    fail("accumulate", {.what = "more parts than the batch has sequences",
                        .got = std::to_string(parts),
                        .expected = fmt::format("1 to {}", rows)});
  }
  run_.masters.zero_grads(ctx_.threads);
  if (run_.routers) run_.routers->clear();
  for (int64_t i = 0; i < parts; ++i) {
    if (parts > 1) take_rows(batch_, rows * i / parts, rows * (i + 1) / parts, part_);
    run_.loss(ctx_, parts > 1 ? part_ : batch_, totals, true, sums);
  }
  run_.masters.sum_uses(ctx_.threads);
}

// What the routers did in this step, and the loss-free step of the biases that select (nemotron.md 7.3).
void Trainer::balance(StepLog& log, const Totals& totals, bool update) {
  const LossRecipe& loss = run_.recipe.loss;
  double aux = 0, busiest = 0;
  for (auto& [number, layer] : run_.routers->layers) {
    const auto experts = std::ssize(layer.load);
    const double sum = std::accumulate(layer.load.begin(), layer.load.end(), 0.0);
    const double most = *std::max_element(layer.load.begin(), layer.load.end());
    busiest = std::max(busiest, most * static_cast<double>(experts) / std::max(sum, 1.0));
    aux += layer.balance / static_cast<double>(std::max<int64_t>(1, totals.tokens));
    if (!update || loss.router_bias_rate == 0 || !layer.bias) continue;
    const auto place = static_cast<size_t>(layer.bias->place);
    update_router_bias(view_of(layer.load.data(), {experts}), static_cast<float>(loss.router_bias_rate),
                       mut_view_of(&run_.masters.values()[place], {experts}));
  }
  if (run_.routers->layers.empty()) return;
  log.load_balance = busiest;
  if (loss.aux > 0) log.aux_loss = loss.aux * aux;
}

// The step that went wrong changed nothing: the last checkpoint and the batch say how to see it again.
void Trainer::give_up(const char* what) const {
  const std::filesystem::path path =
      std::filesystem::path(run_.recipe.out) / fmt::format("bad-batch-{:08}.safetensors", progress_.step + 1);
  const int64_t tokens = std::ssize(batch_.ids);
  io::SafetensorsWriter file(path, {{"ids", DType::i32, {tokens}}, {"targets", DType::i32, {tokens}}});
  file.write("ids", view_of(batch_.ids.data(), {tokens}));
  file.write("targets", view_of(batch_.targets.data(), {tokens}));
  file.finish();
  throw Error(Fault::failed_run,
              format_message("train", {.what = fmt::format("{} of step {} is no number; its batch is in {}", what,
                                                           progress_.step + 1, printable(path.string())),
                                       .hint = "--resume auto with a lower optimizer.lr"}));
}

double Trainer::held_out_loss() {
  LossSums sums;
  Totals all;
  for (int64_t i = 0; i < run_.recipe.eval.batches; ++i) {
    run_.held_out(i, batch_);
    const Totals totals = totals_of(batch_);
    run_.loss(ctx_, batch_, totals, false, sums);
    all.main += totals.main;
  }
  return sums.main / static_cast<double>(std::max<int64_t>(1, all.main));
}

void Trainer::save() {
  if (std::exchange(saved_, progress_.step) == progress_.step) return;
  checkpoints_.save(arrays(), progress_, run_.recipe);
  log_->draw();
}

}  // namespace braid::train
