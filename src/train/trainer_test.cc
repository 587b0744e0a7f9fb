// The loop on a toy loss over a real model's masters: bits must survive cuts into parts, resumes and threads; files
// must survive everything else.
#include "train/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>

#include "io/atomic_folder.h"
#include "io/safetensors.h"
#include "models/models_fixture.h"
#include "sys/interrupt.h"
#include "train/weight_hash.h"

namespace braid::train {
namespace {

namespace fs = std::filesystem;

// Four rows of six tokens; a function of the step alone.
void toy_batch(int64_t step, data::Batch& batch) {
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

// Half the squared distance of every weight from a number that each sequence names, in the order of sequences.
struct ToyLoss {
  models::Masters& masters;
  int64_t calls = 0, bad_call = -1;

  void operator()(Ctx&, const data::Batch& part, const Totals& totals, bool backward, LossSums& sums) {
    const bool bad = calls++ == bad_call;
    for (const Seq& s : part.seqs.seqs) {
      const float goal = 0.01f * static_cast<float>(part.ids[static_cast<size_t>(s.start)]);
      double loss = bad ? std::numeric_limits<double>::quiet_NaN() : 0;
      for (const models::MasterTensor& t : masters.tensors()) {
        for (auto i = static_cast<size_t>(t.place); i < static_cast<size_t>(t.place + t.count()); ++i) {
          const float off = masters.values()[i] - goal;
          loss += 0.5 * off * off;
          if (backward) masters.grads()[i] += off / static_cast<float>(totals.main);
        }
      }
      sums.main += loss;
    }
  }
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

  // Masters after `steps` steps of a run of its own.
  std::vector<float> train(const Recipe& recipe, std::optional<std::string> resume = {}, int64_t bad_call = -1) {
    models::Masters masters(recipe.dtype == "bf16" ? DType::bf16 : DType::f32);
    const io::ModelPath path = io::find_model(folder_.string());
    const auto model = lora_.rank > 0 ? masters.adapt(path, lora_, 1) : masters.load(path);
    Arena arena;
    Ctx ctx{.arena = arena, .threads = threads_};
    Trainer trainer({.recipe = recipe,
                     .masters = masters,
                     .params = masters.params(*model),
                     .origin = folder_,
                     .loss = ToyLoss{masters, 0, bad_call},
                     .batch = toy_batch,
                     .held_out = toy_batch,
                     .routers = nullptr},
                    ctx);
    if (resume) trainer.resume(*resume);
    logs_.clear();
    outcome_ = trainer.train([&](const StepLog& log) { logs_.push_back(log); });
    return {masters.values().begin(), masters.values().end()};
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
  static void expect_same(const std::vector<float>& a, const std::vector<float>& b) {
    ASSERT_EQ(a.size(), b.size());
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
  }

  Recipe recipe_;
  models::AdapterSpec lora_;
  int threads_ = 1;
  Outcome outcome_{};
  std::vector<StepLog> logs_;
};

TEST_F(TrainerTest, PartsAndThreadsChangeNoBit) {
  const auto whole = train(recipe_);
  ASSERT_EQ(logs_.size(), 6u);
  EXPECT_LT(logs_[5].loss, logs_[0].loss);
  for (const int64_t parts : {2, 3, 4}) {
    recipe_.accumulate = parts;
    threads_ = 2;
    expect_same(train(recipe_), whole);
  }
  recipe_.accumulate = 5;
  EXPECT_NE(models::error_of([&] { train(recipe_); }).find("more parts"), std::string::npos);
}

// What is saved is PEFT's folder, and a run goes on from it.
TEST_F(TrainerTest, AResumedRunOfAdaptersHasTheSameBits) {
  lora_ = {.rank = 2, .targets = {"in_proj", "q_proj"}, .target_parameters = {"experts.up_proj"}};
  recipe_.checkpoint.every = 3;
  for (const char* kind : {"adamw", "muon"}) {
    recipe_.optimizer.kind = kind;
    recipe_.dtype = "bf16";
    const auto whole = train(recipe_);
    expect_same(train(recipe_, checkpoint(3)), whole);
    EXPECT_TRUE(fs::exists(fs::path(checkpoint(6)) / "adapter_model.safetensors"));
    EXPECT_FALSE(fs::exists(fs::path(checkpoint(6)) / "model.safetensors"));
    EXPECT_TRUE(fs::exists(fs::path(recipe_.out) / "adapter_config.json"));
  }
}

TEST_F(TrainerTest, AResumedRunHasTheSameBits) {
  for (const char* dtype : {"f32", "bf16"}) {
    for (const char* kind : {"adamw", "muon"}) {
      recipe_.dtype = dtype;
      recipe_.optimizer.kind = kind;
      recipe_.ema_decay = 0.9;
      recipe_.checkpoint.every = 3;
      recipe_.log.jsonl = "log.jsonl";
      const auto whole = train(recipe_);
      const io::Safetensors state(fs::path(checkpoint(6)) / "training" / "state.safetensors");
      const auto log = lines_of(fs::path(recipe_.out) / "loss.csv");
      const auto again = train(recipe_, checkpoint(3));
      expect_same(again, whole);
      ASSERT_EQ(logs_.size(), 3u);
      EXPECT_EQ(lines_of(fs::path(recipe_.out) / "loss.csv"), log);
      EXPECT_EQ(lines_of(fs::path(recipe_.out) / "log.jsonl").size(), 6u);
      const io::Safetensors resumed(fs::path(checkpoint(6)) / "training" / "state.safetensors");
      for (const io::StoredTensor& t : state.tensors()) {
        const View other = resumed.need(t.name);
        ASSERT_EQ(other.bytes(), t.view.bytes());
        EXPECT_EQ(std::memcmp(other.data, t.view.data, static_cast<size_t>(t.view.bytes())), 0) << t.name;
      }
      fs::remove_all(recipe_.out);
    }
  }
}

TEST_F(TrainerTest, OutHoldsTheNewestModelAndTheLatestCheckpoints) {
  recipe_.checkpoint = {.every = 1, .keep = 2, .keep_every = 3, .merge = 2};
  recipe_.ema_decay = 0.5;
  const auto last = train(recipe_);
  for (const int64_t step : {1, 2, 4}) EXPECT_FALSE(fs::exists(checkpoint(step))) << step;
  for (const int64_t step : {3, 5, 6}) EXPECT_TRUE(io::is_complete(checkpoint(step))) << step;
  for (const fs::path& folder :
       {fs::path(recipe_.out), fs::path(recipe_.out) / "merged", fs::path(recipe_.out) / "ema"}) {
    models::Masters masters(DType::f32);
    masters.load(io::find_model(folder.string()));
    const std::vector<float> values(masters.values().begin(), masters.values().end());
    EXPECT_EQ(values == last, folder == fs::path(recipe_.out)) << folder;
  }
}

TEST_F(TrainerTest, ALossThatIsNoNumberStopsTheRun) {
  recipe_.checkpoint.every = 2;
  try {
    train(recipe_, {}, 4);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 2);
    EXPECT_NE(std::string(error.what()).find("bad-batch-00000005.safetensors"), std::string::npos) << error.what();
  }
  const io::Safetensors bad(fs::path(recipe_.out) / "bad-batch-00000005.safetensors");
  data::Batch batch;
  toy_batch(4, batch);
  EXPECT_EQ(std::memcmp(bad.need("ids").data, batch.ids.data(), batch.ids.size() * 4), 0);
  EXPECT_TRUE(io::is_complete(checkpoint(4)));
}

TEST_F(TrainerTest, SpikesChangeNothing) {
  recipe_.spike = {.z = 1e-3, .window = 2};
  recipe_.optimizer.lr = 1;  // diverges: every loss lies above those before
  train(recipe_);
  EXPECT_FALSE(logs_[0].skipped);
  EXPECT_TRUE(logs_[5].skipped);
  EXPECT_GT(logs_[5].z_score, 0);
}

TEST_F(TrainerTest, ASignalSavesAndStops) {
  sys::catch_requests_to_stop();
  std::raise(SIGTERM);
  train(recipe_);
  sys::clear_interrupt();
  EXPECT_EQ(outcome_, Outcome::terminated);
  EXPECT_EQ(logs_.size(), 0u);
  EXPECT_TRUE(io::is_complete(checkpoint(0)));
}

TEST_F(TrainerTest, CheckpointsOfAnotherModelAreRefused) {
  train(recipe_);
  recipe_.dtype = "bf16";
  EXPECT_NE(models::error_of([&] { train(recipe_, checkpoint(6)); }).find("dtype is not that"), std::string::npos);
  recipe_.dtype = "f32";
  EXPECT_NE(models::error_of([&] { train(recipe_, folder_.string()); }).find("no complete checkpoint"),
            std::string::npos);
  nlohmann::json other = models::hybrid();
  other["vocab_size"] = 60;
  write(other, tensors_of(other));
  const std::string error = models::error_of([&] { train(recipe_, checkpoint(6)); });
  EXPECT_NE(error.find("of another shape: tensor "), std::string::npos) << error;
  EXPECT_NE(error.find("[50, 32]; expected F32 [60, 32]"), std::string::npos) << error;
}

TEST_F(TrainerTest, DecayFollowsRoles) {
  recipe_.steps = 1;
  recipe_.optimizer.weight_decay = 0.5;
  const auto some = train(recipe_);
  recipe_.optimizer.no_decay = {"*"};
  const auto none = train(recipe_);
  models::Masters masters(DType::f32);
  masters.load(io::find_model(folder_.string()));
  for (const models::MasterTensor& t : masters.tensors()) {
    const auto at = static_cast<size_t>(t.place);
    const bool plain = t.name.ends_with("A_log") || t.name.ends_with(".D") || t.name.ends_with("bias") ||
                       t.name.find("norm") != std::string::npos || t.name.find("embed") != std::string::npos;
    const bool same = std::memcmp(&some[at], &none[at], static_cast<size_t>(t.count()) * sizeof(float)) == 0;
    EXPECT_EQ(same, plain) << t.name;
  }
}

TEST(WeightHash, EveryBitAndPlaceCounts) {
  std::vector<float> values(600000, 1.0f);
  const uint64_t hash = weight_hash(values, 1);
  EXPECT_EQ(hash, weight_hash(values, 2));
  values[599999] = std::nextafter(1.0f, 2.0f);
  const uint64_t other = weight_hash(values, 1);
  EXPECT_NE(hash, other);
  std::swap(values[599999], values[3]);
  EXPECT_NE(other, weight_hash(values, 1));
}

}  // namespace
}  // namespace braid::train
