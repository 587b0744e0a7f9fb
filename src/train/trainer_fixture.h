// What trainer_test.cc trains: a toy objective over a real model's masters, with faults, and runs of it.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/batch.h"
#include "io/safetensors.h"
#include "io/safetensors_write.h"
#include "models/save.h"
#include "support/models.h"
#include "sys/interrupt.h"
#include "train/trainer.h"

namespace braid::train {

namespace fs = std::filesystem;

// Four rows of six tokens; a function of the step alone.
inline void toy_batch(int64_t step, data::Batch& batch) {
  batch.clear();
  for (int64_t row = 0; row < 4; ++row) {
    batch.seqs.add(6, 0, 0, step * 4 + row);
    for (int64_t t = 0; t < 6; ++t) {
      batch.ids.push_back(static_cast<int32_t>((step * 31 + row * 7 + t) % 11));
      batch.targets.push_back(t == 5 ? data::kMasked : 1);
      batch.trained += t == 5 ? 0 : 1;
    }
    batch.rows.push_back(std::ssize(batch.ids));
  }
}

// Half the squared distance of every weight from a target of each sequence, in the order of sequences.
struct Shift {  // from step `from` on the loss is larger by `by`, which grows by `factor` every step
  int64_t from = -1;
  double by = 0, factor = 1;
};
class ToyObjective final : public Objective {
 public:
  struct Faults {
    int64_t bad_step = -1, steep_step = -1;  // with a NaN loss; with a gradient `steep` times as large
    int64_t empty_step = -1;                 // without a target
    int64_t held_out = 0;                    // held-out batches that there are
    bool moves = false;                      // a weight after the optimiser, as biases of routers
    int64_t interrupted = 0;                 // the held-out batch, from 1, that a signal ends
    Shift shift{};
    float steep = 1;
  };
  ToyObjective(models::MasterWeights& masters, models::Model& model, fs::path origin, const Faults& faults)
      : masters_(masters), model_(model), origin_(std::move(origin)), faults_(faults) {}

  models::MasterWeights& masters() override { return masters_; }
  std::vector<Param*> params() override { return masters_.params(model_); }
  int64_t draw(int64_t step, bool held_out) override {
    toy_batch(step, batch_);
    step_ = held_out ? -2 : step;
    if (!held_out) drawn.push_back(step);
    if (held_out && ++held_out_ == faults_.interrupted) throw sys::Interrupted{};
    return std::ssize(batch_.rows) - 1;
  }
  bool holds_out() const override { return true; }
  int64_t held_out_batches() const override { return faults_.held_out; }
  int64_t tokens() const override { return std::ssize(batch_.ids); }
  void run(Ctx&, int64_t begin, int64_t end, bool backward, Sums& sums) override {
    const bool bad = step_ == faults_.bad_step;
    const float steep = step_ == faults_.steep_step ? faults_.steep : 1.0f;
    rows_max = std::max(rows_max, end - begin);
    Sums::Sum& total = sums["loss"];
    if (step_ == faults_.empty_step) return;
    const Shift& shift = faults_.shift;
    if (shift.from >= 0 && step_ >= shift.from)
      total.sum += shift.by * std::pow(shift.factor, static_cast<double>(step_ - shift.from)) *
                   static_cast<double>(batch_.trained);
    for (int64_t row = begin; row < end; ++row) {
      const Seq& s = batch_.seqs.seqs[static_cast<size_t>(row)];
      const float goal = 0.01f * static_cast<float>(batch_.ids[static_cast<size_t>(s.start)]);
      double loss = bad ? std::numeric_limits<double>::quiet_NaN() : 0;
      for (const models::MasterTensor& t : masters_.tensors()) {
        for (auto i = static_cast<size_t>(t.offset); i < static_cast<size_t>(t.offset + t.count()); ++i) {
          const float off = masters_.values()[i] - goal;
          loss += 0.5 * off * off;
          if (backward) masters_.grads()[i] += steep * off / static_cast<float>(batch_.trained);
        }
      }
      total.sum += loss;
      total.count += 5;
    }
  }
  void finish(bool updated, Sums&) override {
    if (updated && faults_.moves) masters_.values()[0] += 0.5f;
  }
  int64_t held_out_drawn() const { return held_out_; }
  void write(std::span<const float> values, const fs::path& folder) override {
    while (copies_hang && getpid() != own_) pause();
    models::save_model(masters_, values, origin_, folder);
  }
  fs::path weights_in(const fs::path& folder) const override { return models::weights_in(masters_, folder); }
  void write_batch(const fs::path& path) const override {
    io::SafetensorsWriter file(path, {{"ids", DType::i32, {tokens()}}});
    file.write("ids", view_of(batch_.ids.data(), {tokens()}));
    file.finish();
  }
  Facts facts() const override { return stated; }

  Facts stated;
  bool copies_hang = false;  // of the process, in what they write
  int64_t rows_max = 0;
  std::vector<int64_t> drawn;  // batches of training

 private:
  models::MasterWeights& masters_;
  models::Model& model_;
  fs::path origin_;
  Faults faults_;
  data::Batch batch_;
  int64_t step_ = -1, held_out_ = 0;
  pid_t own_ = getpid();
};

class TrainerTest : public models::FolderTest {
 protected:
  TrainerTest() {
    recipe_.out = (folder_ / "out").string();
    recipe_.dtype = "f32";
    recipe_.steps = 6;
    recipe_.optimizer.lr = 1e-2;
    write(models::hybrid(), tensors_of(models::hybrid()));
  }

  // MasterWeights after `steps` steps of a separate run.
  std::vector<float> train(const Recipe& recipe, std::optional<std::string> resume = {}, int64_t bad_step = -1,
                           bool force = false) {
    models::MasterWeights masters(recipe.dtype == "bf16" ? DType::bf16 : DType::f32);
    const io::ModelPath path = io::find_model(folder_.string());
    const auto model = lora_.rank > 0 ? masters.adapt(path, lora_, 1) : masters.load(path);
    Arena arena;
    Ctx ctx{.arena = arena, .threads = threads_};
    if (pruned_) prune(masters);
    initial_.assign(masters.values().begin(), masters.values().end());
    ToyObjective toy(masters, *model, folder_,
                     {.bad_step = bad_step,
                      .steep_step = steep_,
                      .empty_step = empty_,
                      .held_out = held_out_batches_,
                      .moves = moves_,
                      .interrupted = interrupted_,
                      .shift = shift_,
                      .steep = steep_by_});
    toy.stated = facts_;
    toy.copies_hang = copies_hang_;
    Trainer trainer(recipe, toy, ctx);
    if (resume) trainer.resume(*resume, force);
    logs_.clear();
    held_out_.clear();
    outcome_ = trainer.train({.step =
                                  [&](const StepLog& log) {
                                    logs_.push_back(log);
                                    if (on_step_) on_step_(log, masters.values());
                                  },
                              .held_out = [&](const HeldOutLog& log) { held_out_.push_back(log); }});
    rows_max_ = toy.rows_max;
    held_out_drawn_ = toy.held_out_drawn();
    drawn_ = toy.drawn;
    return {masters.values().begin(), masters.values().end()};
  }
  // Every third element of the masters becomes zero.
  static void prune(models::MasterWeights& masters) {
    for (size_t i = 0; i < masters.values().size(); i += 3) masters.values()[i] = 0;
    masters.round(1);
  }
  std::string checkpoint(int64_t step) const {
    return (fs::path(recipe_.out) / "checkpoints" / fmt::format("step-{:08}", step)).string();
  }
  static std::vector<std::string> lines_of(const fs::path& path) {
    std::ifstream in(path);
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
  // What held-out evaluation gives for these masters: of batch 0, a mean over its targets.
  double toy_loss(const std::vector<float>& values) const {
    models::MasterWeights masters(recipe_.dtype == "bf16" ? DType::bf16 : DType::f32);
    const auto model = masters.load(io::find_model(folder_.string()));
    std::copy(values.begin(), values.end(), masters.values().begin());
    Arena arena;
    Ctx ctx{.arena = arena};
    Sums sums;
    ToyObjective toy(masters, *model, folder_, {});
    toy.run(ctx, 0, toy.draw(0, true), false, sums);
    return sums.mean("loss");
  }
  // The initial toy model: the places of its tensors.
  void with_tensors(const std::function<void(const models::MasterTensor&)>& visit) const {
    models::MasterWeights masters(DType::f32);
    masters.load(io::find_model(folder_.string()));
    for (const models::MasterTensor& t : masters.tensors()) visit(t);
  }
  // What a checkpoint keeps of every tensor under "m.", "v.", "ema.", at the places of the masters.
  std::vector<float> kept(int64_t step, const char* prefix) const {
    const io::Safetensors state(fs::path(checkpoint(step)) / "training" / "state.safetensors");
    std::vector<float> array(initial_.size());
    with_tensors([&](const models::MasterTensor& t) {
      const View view = state.need(prefix + t.name);
      models::from_stored(t, {view.data, static_cast<size_t>(view.bytes())}, false, array);
    });
    return array;
  }
  // The running mean after updates that left these masters, by its formula.
  std::vector<double> mean_of(const std::vector<std::vector<float>>& seen) const {
    std::vector<double> mean = initial_;
    for (size_t n = 1; n <= seen.size(); ++n) {
      const double decay =
          std::min(recipe_.ema_decay, (1.0 + static_cast<double>(n)) / (10.0 + static_cast<double>(n)));
      for (size_t i = 0; i < mean.size(); ++i)
        mean[i] = decay * mean[i] + (1 - decay) * static_cast<double>(seen[n - 1][i]);
    }
    return mean;
  }
  static void expect_near(const std::vector<float>& got, const std::vector<double>& want, double bound) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], bound) << i;
  }
  static void expect_same(const std::vector<float>& a, const std::vector<float>& b) {
    ASSERT_EQ(a.size(), b.size());
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
  }

  Recipe recipe_;
  models::AdapterSpec lora_;
  int threads_ = 1;
  bool pruned_ = false, copies_hang_ = false;
  Outcome outcome_{};
  std::vector<StepLog> logs_;
  std::vector<HeldOutLog> held_out_;
  std::vector<double> initial_;  // masters
  std::function<void(const StepLog&, std::span<const float>)> on_step_;
  Facts facts_ = {{"content of the data", "\"one\""}};
  Shift shift_;
  int64_t steep_ = -1, empty_ = -1, interrupted_ = 0, rows_max_ = 0, held_out_batches_ = 0, held_out_drawn_ = 0;
  bool moves_ = false;
  float steep_by_ = 100;
  std::vector<int64_t> drawn_;
};

}  // namespace braid::train
