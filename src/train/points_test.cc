// A second objective: a small classifier of points, without tokens or a language model. The same loop trains it, logs
// its metrics, checkpoints and resumes it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/philox.h"
#include "core/tape.h"
#include "io/safetensors.h"
#include "io/safetensors_write.h"
#include "nn/ops.h"
#include "support/error_of.h"
#include "support/folder.h"
#include "train/trainer.h"

namespace braid::train {
namespace {

namespace fs = std::filesystem;

// Is a point of the square within a ring around the middle? Two layers and a head of two classes.
class Points final : public Objective {
 public:
  Points(DType products, uint64_t seed) : masters_(products), seed_(seed) {
    params_ = masters_.own({{.name = "inner.weight", .shape = {kWidth, 3}},
                            {.name = "outer.weight", .shape = {kWidth, kWidth}},
                            {.name = "head.weight", .shape = {2, kWidth}}});
    const std::span<float> values = masters_.values();
    for (size_t i = 0; i < values.size(); ++i) values[i] = 1.2f * (draw_unit(1, static_cast<int64_t>(i)) - 0.5f);
    masters_.round(1);
  }

  models::MasterWeights& masters() override { return masters_; }
  std::vector<Param*> params() override {
    std::vector<Param*> list;
    for (Param& p : params_) list.push_back(&p);
    return list;
  }
  int64_t draw(int64_t step, bool held_out) override {
    points_.clear();
    classes_.clear();
    for (int64_t i = 0; i < kBatch; ++i) {
      const uint32_t stream = held_out ? 3 : 2;
      const float x = 2 * draw_unit(stream, 2 * (step * kBatch + i)) - 1,
                  y = 2 * draw_unit(stream, 2 * (step * kBatch + i) + 1) - 1;
      points_.insert(points_.end(), {x, y, 1});
      classes_.push_back(std::hypot(x, y) > 0.3f && std::hypot(x, y) < 0.8f ? 1 : 0);
    }
    return kBatch;
  }
  bool holds_out() const override { return true; }
  int64_t tokens() const override { return kBatch; }
  void run(Ctx& ctx, int64_t begin, int64_t end, bool backward, Sums& sums) override {
    ctx.tape = backward ? &tape_ : nullptr;
    SeqMap seqs;  // every point is its own sequence, so that no cut changes a sum
    for (int64_t i = begin; i < end; ++i) seqs.add(1);
    nn::StateView none;
    nn::Run run{.ctx = ctx, .seqs = seqs, .state = none, .numerics = Numerics::training(masters_.products())};
    const int64_t n = end - begin;
    const Tensor x(ctx.arena, masters_.products(), {n, 3}), target(ctx.arena, DType::i32, {n}),
        weight(ctx.arena, DType::f32, {n});
    for (int64_t i = 0; i < 3 * n; ++i)
      set_element(x.mut(), i, static_cast<double>(points_[static_cast<size_t>(3 * begin + i)]));
    std::memcpy(target.mut().data, &classes_[static_cast<size_t>(begin)], static_cast<size_t>(n) * 4);
    fill(weight.mut(), 1.0 / kBatch);
    const Tensor inner = nn::act(run, nn::linear(run, x, params_[0], run.numerics.activations), {}, Act::silu),
                 outer = nn::act(run, nn::linear(run, inner, params_[1], run.numerics.activations), {}, Act::silu);
    const Tensor losses = nn::head_loss(run, outer, params_[2], target, weight, 0).loss;
    Sums::Sum loss = sums["loss"], right = sums["accuracy"];
    for (int64_t i = 0; i < n; ++i) {
      loss.sum += element(losses.view(), i);
      right.sum += element(losses.view(), i) < std::log(2.0) ? 1 : 0;
    }
    loss.count = right.count = loss.count + static_cast<double>(n);
    sums["loss"] = loss;
    sums["accuracy"] = right;
    if (backward) tape_.backward(ctx);
    tape_.clear();
    ctx.tape = nullptr;
  }
  void finish(bool updated, Sums& sums) override { sums["updated"].sum = updated ? 1 : 0; }
  void write(std::span<const float> values, const fs::path& folder) override {
    fs::create_directories(folder);
    std::vector<io::TensorSpec> specs;
    for (const models::MasterTensor& t : masters_.tensors()) specs.push_back({t.name, DType::f32, t.shape});
    io::SafetensorsWriter file(weights_in(folder), specs);
    for (const io::TensorSpec& spec : file.order()) {
      const float* at = &values[static_cast<size_t>(masters_.tensor(spec.name).offset)];
      file.write(spec.name, view_of(at, spec.shape));
    }
    file.finish();
  }
  fs::path weights_in(const fs::path& folder) const override { return folder / "points.safetensors"; }
  void write_batch(const fs::path& file) const override { std::ofstream(file) << points_.size() << " numbers"; }
  Facts facts() const override { return {{"points", std::to_string(seed_)}}; }

 private:
  static constexpr int64_t kWidth = 32, kBatch = 64;
  float draw_unit(uint32_t stream, int64_t i) const {
    return uniform(philox({.seed = seed_, .stream = stream}, static_cast<uint64_t>(i))[0]);
  }

  models::MasterWeights masters_;
  uint64_t seed_;
  std::vector<Param> params_;
  std::vector<float> points_;
  std::vector<int32_t> classes_;
  Tape tape_;
};

class PointsTest : public support::FolderTest {
 protected:
  PointsTest() {
    recipe_.out = (folder_ / "out").string();
    recipe_.dtype = "f32";
    recipe_.steps = 300;
    recipe_.optimizer.lr = 2e-2;
    recipe_.optimizer.weight_decay = 0;
    recipe_.schedule = {.kind = "cosine", .warmup = 10};
    recipe_.checkpoint.every = 100;
    recipe_.checkpoint.keep = 9;
    recipe_.log.jsonl = "log.jsonl";
    recipe_.eval = {.every = 100, .batches = 4};
    recipe_.ema_decay = 0.9;
  }

  std::vector<float> train(uint64_t seed = 7, const std::string& from = {}) {
    Points points(recipe_.dtype == "bf16" ? DType::bf16 : DType::f32, seed);
    Arena arena;
    Ctx ctx{.arena = arena, .threads = 2};
    Trainer trainer(recipe_, points, ctx);
    if (!from.empty()) trainer.resume(from);
    held_out_.clear();
    trainer.train({.step = [&](const StepLog& log) { last_ = log; },
                   .held_out = [&](const HeldOutLog& log) { held_out_.push_back(log); }});
    return {points.masters().values().begin(), points.masters().values().end()};
  }
  // The held-out loss of what a folder holds, without a trainer.
  double held_out_loss(const fs::path& folder) const {
    Points points(recipe_.dtype == "bf16" ? DType::bf16 : DType::f32, 7);
    const io::Safetensors file(points.weights_in(folder));
    for (const models::MasterTensor& t : points.masters().tensors()) {
      const View view = file.need(t.name);
      models::from_stored(t, {view.data, static_cast<size_t>(view.bytes())}, true, points.masters().values());
    }
    points.masters().round(1);
    Arena arena;
    Ctx ctx{.arena = arena};
    Sums sums;
    for (int64_t i = 0; i < recipe_.eval.batches; ++i) {
      const int64_t rows = points.draw(i, true);
      points.run(ctx, 0, rows, false, sums);
    }
    return sums.mean("loss");
  }
  std::string checkpoint(int step) const {
    return (fs::path(recipe_.out) / "checkpoints" / fmt::format("step-{:08}", step)).string();
  }

  Recipe recipe_;
  StepLog last_;
  std::vector<HeldOutLog> held_out_;
};

TEST_F(PointsTest, AreLearntLoggedAndGoneOnWithByTheSameLoop) {
  for (const char* dtype : {"f32", "bf16"}) {
    recipe_.dtype = dtype;
    const auto whole = train();
    EXPECT_LT(last_.loss, 0.25);
    ASSERT_EQ(last_.metrics.size(), 2u);
    EXPECT_STREQ(last_.metrics[0].first, "accuracy");
    EXPECT_GT(last_.metrics[0].second, 0.9);
    EXPECT_EQ(last_.metrics[1].second, 1);
    ASSERT_EQ(held_out_.size(), 3u);
    EXPECT_LT(held_out_[2].loss, 0.45);
    EXPECT_LT(*held_out_[2].ema_loss, 0.45);
    EXPECT_EQ(held_out_[2].loss, held_out_loss(recipe_.out));
    EXPECT_EQ(*held_out_[2].ema_loss, held_out_loss(fs::path(recipe_.out) / "ema"));
    std::ifstream log(fs::path(recipe_.out) / "log.jsonl");
    std::string line;
    std::getline(log, line);
    const auto first = nlohmann::json::parse(line);
    EXPECT_LT(first["accuracy"], 0.8);
    EXPECT_GT(first["loss"], 0.5);
    // The files are the objective's own.
    EXPECT_TRUE(fs::exists(fs::path(recipe_.out) / "points.safetensors"));
    EXPECT_TRUE(fs::exists(fs::path(recipe_.out) / "ema" / "points.safetensors"));
    EXPECT_FALSE(fs::exists(fs::path(recipe_.out) / "config.json"));

    recipe_.accumulate = 4;
    EXPECT_EQ(train(7, checkpoint(100)), whole);
    recipe_.accumulate = 1;
    EXPECT_NE(support::error_of([&] { train(8, checkpoint(100)); }).find("points is 7 there and 8 here"),
              std::string::npos);
    fs::remove_all(recipe_.out);
  }
}

}  // namespace
}  // namespace braid::train
