// The loop on a toy loss over a real model's masters: bits must survive cuts into parts, resumes and threads; files
// must survive everything else.
#include "train/trainer_fixture.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>

#include "data/batch.h"
#include "io/atomic_folder.h"
#include "io/safetensors.h"
#include "io/safetensors_write.h"
#include "models/save.h"
#include "support/models.h"
#include "sys/interrupt.h"
#include "sys/read.h"

namespace braid::train {
namespace {

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

// Checkpoints are PEFT folders, and a run resumes from one.
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

// Training goes on while a copy of the process writes: what is saved is the step at which it was asked for.
TEST_F(TrainerTest, ACopyOfTheProcessWritesTheSameCheckpoints) {
  recipe_.checkpoint = {.every = 2, .keep = 9, .merge = 3};
  recipe_.log.jsonl = "log.jsonl";
  const auto files_of = [&] {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(recipe_.out) / "checkpoints")) {
      if (entry.is_regular_file() && entry.path().filename() != "recipe.toml")
        files[entry.path().string()] = sys::read_file(entry.path());
    }
    files["merged"] = sys::read_file(fs::path(recipe_.out) / "merged" / "model.safetensors");
    return files;
  };
  const auto whole = train(recipe_);
  const auto files = files_of();
  fs::remove_all(recipe_.out);
  recipe_.checkpoint.async = true;
  expect_same(train(recipe_), whole);
  EXPECT_EQ(files_of(), files);
  EXPECT_EQ(lines_of(fs::path(recipe_.out) / "log.jsonl").size(), 6u + 2u);  // steps, and checkpoints but the last
  expect_same(train(recipe_, checkpoint(4)), whole);
}

// A writer that was killed, as where memory is short, costs one checkpoint: the run saves once more, and goes on.
TEST_F(TrainerTest, AKilledWriterIsMadeUpFor) {
  const auto whole = train(recipe_);
  fs::remove_all(recipe_.out);
  recipe_.checkpoint = {.every = 2, .keep = 9, .async = true};
  recipe_.log.jsonl = "log.jsonl";
  on_step_ = [&](const StepLog& log, std::span<const float>) {
    if (log.step != 3) return;
    std::ifstream children(fmt::format("/proc/self/task/{}/children", gettid()));
    for (pid_t child; children >> child;) {
      kill(child, SIGKILL);
      siginfo_t ended{};
      waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT);
    }
  };
  copies_hang_ = true;
  expect_same(train(recipe_), whole);
  const auto lines = lines_of(fs::path(recipe_.out) / "log.jsonl");
  EXPECT_EQ(std::ranges::count_if(lines, [](const std::string& l) { return l.find("checkpoint_lost") != l.npos; }), 1);
  EXPECT_FALSE(io::is_complete(checkpoint(2)));
  EXPECT_TRUE(io::is_complete(checkpoint(3)));
  EXPECT_TRUE(io::is_complete(checkpoint(4)));
}

// Zeros of the layers' matrices stay, with their moments; all else is trained, zero or not. A step that only masked its
// result would move the norm, and under Muon every other element.
TEST_F(TrainerTest, ZerosAreKept) {
  pruned_ = true;
  recipe_.checkpoint.every = 3;
  recipe_.ema_decay = 0.9;
  for (const char* dtype : {"f32", "bf16"}) {
    for (const char* kind : {"adamw", "muon"}) {
      recipe_.dtype = dtype;
      recipe_.optimizer.kind = kind;
      recipe_.optimizer.keep_zeros = false;
      const auto dense = train(recipe_);
      const double dense_norm = logs_[0].grad_norm;
      fs::remove_all(recipe_.out);
      recipe_.optimizer.keep_zeros = true;
      const auto whole = train(recipe_);
      EXPECT_LT(logs_[0].grad_norm, 0.99 * dense_norm);
      const std::vector<float> m = kept(6, "m."), v = kept(6, "v."), ema = kept(6, "ema.");
      int64_t zeros = 0, trained = 0;
      with_tensors([&](const models::MasterTensor& t) {
        const bool inside = t.matrix && t.role != ParamRole::embedding && t.role != ParamRole::head;
        for (auto i = static_cast<size_t>(t.offset); i < static_cast<size_t>(t.offset + t.count()); ++i) {
          if (t.role == ParamRole::router_bias) continue;
          if (inside && initial_[i] == 0) {
            ASSERT_EQ(whole[i], 0) << t.name;
            ASSERT_EQ(m[i], 0) << t.name;
            ASSERT_EQ(v[i], 0) << t.name;
            ASSERT_EQ(ema[i], 0) << t.name;
            ++zeros;
          } else {
            trained += whole[i] != static_cast<float>(initial_[i]);
          }
          EXPECT_TRUE(initial_[i] != 0 || dense[i] != 0) << t.name;  // the test's loss trains zeros
        }
      });
      EXPECT_GT(zeros, 1000);
      EXPECT_GT(trained, zeros);
      expect_same(train(recipe_, checkpoint(3)), whole);
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
    models::MasterWeights masters(DType::f32);
    masters.load(io::find_model(folder.string()));
    const std::vector<float> values(masters.values().begin(), masters.values().end());
    EXPECT_EQ(values == last, folder == fs::path(recipe_.out)) << folder;
  }
}

TEST_F(TrainerTest, ANonFiniteLossStopsTheRun) {
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

// The loss may be finite while its gradient is not: the run ends before a weight changes.
TEST_F(TrainerTest, ANonFiniteNormStopsTheRun) {
  steep_ = 5;  // the last step: no later loss would reveal its weights
  for (const float by : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    steep_by_ = by;
    try {
      train(recipe_);
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), 2);
      EXPECT_NE(std::string(error.what()).find("the norm of the gradients"), std::string::npos) << error.what();
    }
    EXPECT_TRUE(fs::exists(fs::path(recipe_.out) / "bad-batch-00000006.safetensors"));
    fs::remove_all(recipe_.out);
  }
}

// A lasting change of the data: its first steps are skipped and change no weight, moment or mean, then the window has
// adapted and the run continues with the batch after the skipped one. A resumed run uses the same window.
TEST_F(TrainerTest, SpikesChangeNothingAndAShiftIsFollowed) {
  recipe_.steps = 30;
  recipe_.optimizer.lr = 1e-3;
  recipe_.spike = {.z = 3, .window = 8};
  recipe_.ema_decay = 0.9;
  recipe_.checkpoint = {.every = 1, .keep = 30};
  shift_ = {10, 1000};  // from step 10 on every loss is larger by this much
  std::vector<std::vector<float>> updates;
  on_step_ = [&](const StepLog& log, std::span<const float> now) {
    const bool same = !updates.empty() && std::equal(now.begin(), now.end(), updates.back().begin());
    EXPECT_EQ(same, log.skipped) << log.step;
    if (!log.skipped) updates.emplace_back(now.begin(), now.end());
  };
  const auto whole = train(recipe_);
  ASSERT_EQ(logs_.size(), 30u);
  for (size_t i = 0; i < 10; ++i) EXPECT_FALSE(logs_[i].skipped) << i;
  EXPECT_TRUE(logs_[10].skipped);
  EXPECT_GT(logs_[10].z_score, 3);
  for (size_t i = 18; i < 30; ++i) EXPECT_FALSE(logs_[i].skipped) << i;
  for (size_t i = 0; i < 30; ++i) EXPECT_EQ(drawn_.at(i), static_cast<int64_t>(i));
  for (const char* prefix : {"m.", "v.", "ema."}) expect_same(kept(11, prefix), kept(10, prefix));
  updates.resize(10);
  expect_near(kept(11, "ema."), mean_of(updates), 1e-5);
  on_step_ = {};
  expect_same(train(recipe_, checkpoint(10)), whole);
  EXPECT_TRUE(logs_.at(0).skipped);
}

// It has no loss: nothing is updated, decay included, and neither the window nor the curve sees it.
TEST_F(TrainerTest, AStepWithoutTargetsChangesNothing) {
  recipe_.steps = 20;
  recipe_.spike.window = 4;
  recipe_.optimizer.weight_decay = 0.1;
  recipe_.checkpoint = {.every = 1, .keep = 30};
  recipe_.log.jsonl = "log.jsonl";
  empty_ = 12;
  std::vector<float> last;
  on_step_ = [&](const StepLog& log, std::span<const float> now) {
    EXPECT_EQ(!last.empty() && std::equal(now.begin(), now.end(), last.begin()), log.skipped) << log.step;
    EXPECT_EQ(log.skipped, log.step == 13);
    last.assign(now.begin(), now.end());
  };
  const auto whole = train(recipe_);
  ASSERT_EQ(logs_.size(), 20u);
  EXPECT_TRUE(logs_[12].empty);
  EXPECT_NE(line_of(logs_[12]).find("step 13/20  no targets  norm"), std::string::npos) << line_of(logs_[12]);
  EXPECT_NE(json_of(logs_[12]).find("\"loss\":null"), std::string::npos);
  const auto windows = [&](int64_t step) {
    const io::Json state = io::Json::read(fs::path(checkpoint(step)) / "training" / "state.json");
    return std::pair(state.need({"losses"}).raw(), state.need({"norms"}).raw());
  };
  EXPECT_EQ(windows(13), windows(12));
  EXPECT_NE(windows(14), windows(13));
  EXPECT_TRUE(lines_of(fs::path(recipe_.out) / "loss.csv").at(13).starts_with("13,,0,"));
  on_step_ = {};
  expect_same(train(recipe_, checkpoint(10)), whole);
}

TEST_F(TrainerTest, SpikesWithoutEndStopTheRun) {
  recipe_.steps = 30;
  recipe_.optimizer.lr = 1e-6;
  recipe_.checkpoint = {.every = 1, .keep = 30};
  recipe_.spike = {.z = 3, .window = 4, .patience = 4};
  shift_ = {10, 1000, 2};  // doubling every step
  const auto expect_end = [&](const std::optional<std::string>& resume) {
    try {
      train(recipe_, resume);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), 2);
      EXPECT_NE(std::string(error.what()).find("steps 11 to 14 were all skipped"), std::string::npos) << error.what();
    }
  };
  expect_end({});
  EXPECT_TRUE(io::is_complete(checkpoint(13)));
  expect_end(checkpoint(12));  // two of the four were before the resume
}

TEST_F(TrainerTest, ANormThatStandsOutIsASpike) {
  recipe_.steps = 14;
  recipe_.optimizer.lr = 1e-6;
  recipe_.spike = {.norm_z = 5, .window = 8};
  steep_ = 12;
  train(recipe_);
  ASSERT_EQ(logs_.size(), 14u);
  for (size_t i = 0; i < 14; ++i) EXPECT_EQ(logs_[i].skipped, i == 12) << i;
  EXPECT_GT(logs_[12].norm_z_score, 5);
  EXPECT_LT(logs_[12].z_score, 5);
}

// Each word that affects bits is named; the others may differ, and --force accepts everything.
TEST_F(TrainerTest, AResumptionNamesEachDifference) {
  recipe_.checkpoint.every = 3;
  train(recipe_);
  Recipe other = recipe_;
  other.seed = 5;
  other.batch = 9;
  other.optimizer.beta2 = 0.5;
  other.spike.z = 7;
  facts_ = {{"content of the data", "\"two\""}};
  const std::string error = models::error_of([&] { train(other, checkpoint(3)); });
  for (const char* named :
       {"seed is 0 there and 5 here", "batch is 0 there and 9 here", "optimizer.beta2 is 0.95 there and 0.5 here",
        "spike.z is 0.0 there and 7.0 here", "content of the data is \"one\" there and \"two\" here", "--force"}) {
    EXPECT_NE(error.find(named), std::string::npos) << error;
  }
  EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 0);
  train(other, checkpoint(3), -1, true);
  EXPECT_EQ(logs_.size(), 3u);
  facts_ = {{"content of the data", "\"all one\""}};
  EXPECT_NE(models::error_of([&] { train(recipe_, checkpoint(3)); })
                .find("does not match the recipe: content of the data is known from a few batches there, as older "
                      "versions wrote it, and whole here; try"),
            std::string::npos);
  // A checkpoint of a version that wrote no manifest.
  fs::remove(fs::path(checkpoint(3)) / "training" / "manifest.json");
  EXPECT_NE(models::error_of([&] { train(recipe_, checkpoint(3)); }).find("it has no training/manifest.json"),
            std::string::npos);
  facts_ = {{"content of the data", "\"one\""}};
  const auto resumed = train(recipe_, checkpoint(3), -1, true);
  ASSERT_EQ(logs_.size(), 3u);
  fs::remove_all(recipe_.out);
  expect_same(resumed, train(recipe_));
  facts_ = {{"content of the data", "\"one\""}};
  Recipe same = recipe_;
  same.steps = 5;
  same.accumulate = 2;
  same.recompute = "full";
  same.schedule.decay = 2;
  same.eval = {.every = 1, .batches = 2};
  same.log.every = 2;
  same.checkpoint = {.every = 2, .keep = 5};
  train(same, checkpoint(3));
  EXPECT_EQ(outcome_, Outcome::finished);
}

// The mean follows its formula with its warm-up, and its own held-out loss is logged without touching the weights.
TEST_F(TrainerTest, TheRunningMeanFollowsItsFormulaAndIsEvaluated) {
  for (const char* dtype : {"f32", "bf16"}) {
    recipe_.dtype = dtype;
    recipe_.ema_decay = 0.3;  // reached by (1 + n) / (10 + n) at the third update
    moves_ = true;            // the mean is of what every step leaves
    const auto plain = train(recipe_);
    std::vector<std::vector<float>> seen;
    on_step_ = [&](const StepLog&, std::span<const float> now) { seen.emplace_back(now.begin(), now.end()); };
    recipe_.eval = {.every = 2, .batches = 1};
    fs::remove_all(recipe_.out);
    expect_same(train(recipe_), plain);
    ASSERT_EQ(seen.size(), 6u);
    const std::vector<float> stored = kept(6, "ema.");
    expect_near(stored, mean_of(seen), 1e-5);
    ASSERT_EQ(held_out_.size(), 3u);
    // The toy loss of the stored mean.
    const std::vector<float> last = seen.back();
    EXPECT_NEAR(held_out_[2].loss, toy_loss(last), 1e-3 * toy_loss(last));
    EXPECT_NEAR(held_out_[2].ema_loss.value(), toy_loss(stored), 1e-3 * toy_loss(stored));
    EXPECT_NE(*held_out_[2].ema_loss, held_out_[2].loss);
    on_step_ = {};
    recipe_.eval.every = 0;
    fs::remove_all(recipe_.out);
  }
}

// While the mean is in the place of the weights.
TEST_F(TrainerTest, ASignalInAHeldOutPassSavesTheWeights) {
  for (const char* dtype : {"f32", "bf16"}) {
    recipe_.dtype = dtype;
    recipe_.ema_decay = 0.3;
    recipe_.eval = {.every = 2, .batches = 1};
    fs::remove_all(recipe_.out);
    const auto whole = train(recipe_);
    const std::vector<float> mean = kept(6, "ema.");
    std::vector<float> second;
    on_step_ = [&](const StepLog& log, std::span<const float> now) {
      if (log.step == 2) second.assign(now.begin(), now.end());
    };
    interrupted_ = 2;  // held-out batches of the weights, and of their mean
    fs::remove_all(recipe_.out);
    expect_same(train(recipe_), second);
    EXPECT_EQ(outcome_, Outcome::stopped);
    on_step_ = {};
    interrupted_ = 0;
    expect_same(train(recipe_, checkpoint(2)), whole);
    expect_same(kept(6, "ema."), mean);
  }
}

// With another learning rate from step 2, as recommended after divergence: later checkpoints belong to no run.
TEST_F(TrainerTest, ResumingFromAnOlderCheckpointSetsTheLaterOnesAside) {
  recipe_.checkpoint = {.every = 2, .keep = 2, .keep_every = 2};
  train(recipe_);
  recipe_.checkpoint.keep_every = 0;
  recipe_.optimizer.lr = 1e-3;
  recipe_.steps = 5;
  const std::vector<float> last = train(recipe_, checkpoint(2), -1, true);
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(fs::path(recipe_.out) / "checkpoints"))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"left-00000004", "left-00000006", "step-00000004", "step-00000005"}));
  EXPECT_EQ(fs::path(list_checkpoints(recipe_.out).back()).filename(), "step-00000005");
  models::MasterWeights masters(DType::f32);
  masters.load(io::find_model(recipe_.out));
  expect_same({masters.values().begin(), masters.values().end()}, last);
}

// For any number, and of the masters: with BF16 products their mean is rounded once, for the file.
TEST_F(TrainerTest, AMergeIsTheMeanOfAsManyAsWereAsked) {
  for (const char* dtype : {"f32", "bf16"}) {
    for (const int64_t keep : {1, 6}) {
      recipe_.dtype = dtype;
      recipe_.checkpoint = {.every = 1, .keep = keep, .merge = 3};
      std::vector<std::vector<float>> seen;
      on_step_ = [&](const StepLog&, std::span<const float> now) { seen.emplace_back(now.begin(), now.end()); };
      fs::remove_all(recipe_.out);
      train(recipe_);
      models::MasterWeights masters(DType::f32);
      masters.load(io::find_model((fs::path(recipe_.out) / "merged").string()));
      const bool rounded = recipe_.dtype == "bf16";
      for (const models::MasterTensor& t : masters.tensors()) {
        for (auto i = static_cast<size_t>(t.offset); i < static_cast<size_t>(t.offset + t.count()); ++i) {
          float mean = 0;
          for (const size_t step : {3u, 4u, 5u}) mean += 1.0f / 3 * seen[step][i];
          ASSERT_EQ(masters.values()[i], rounded && t.matrix ? to_float(to_bf16(mean)) : mean) << t.name;
        }
      }
    }
  }
  on_step_ = {};
  recipe_.dtype = "f32";
  fs::remove_all(recipe_.out);
  recipe_.checkpoint.merge = 7;
  EXPECT_NE(models::error_of([&] { train(recipe_); }).find("fewer checkpoints; got 7; expected at most 6"),
            std::string::npos);
  recipe_.checkpoint.every = 0;
  recipe_.checkpoint.merge = 2;
  EXPECT_NE(models::error_of([&] { train(recipe_); }).find("expected at most 1"), std::string::npos);
}

// A run stopped between two checkpoints and resumed merges what an uninterrupted run merges, and keeps the same latest.
TEST_F(TrainerTest, AStopChangesNoMerge) {
  recipe_.steps = 7;
  recipe_.checkpoint = {.every = 2, .keep = 1, .merge = 3};
  const fs::path merged = fs::path(recipe_.out) / "merged" / "model.safetensors";
  const auto whole = train(recipe_);
  const auto wanted = sys::read_file(merged);
  fs::remove_all(recipe_.out);
  sys::catch_requests_to_stop();
  std::vector<int64_t> stops = {1, 5};
  on_step_ = [&](const StepLog& log, std::span<const float>) {
    if (std::find(stops.begin(), stops.end(), log.step) != stops.end()) std::raise(SIGTERM);
  };
  train(recipe_);
  sys::clear_interrupt();
  train(recipe_, checkpoint(1));
  sys::clear_interrupt();
  EXPECT_TRUE(io::is_complete(checkpoint(5)));
  EXPECT_EQ(train(recipe_, checkpoint(5)), whole);
  EXPECT_EQ(sys::read_file(merged), wanted);
  for (const int64_t step : {1, 2, 5}) EXPECT_FALSE(fs::exists(checkpoint(step))) << step;
  // The last step of a shorter run is not a regular checkpoint of the longer one.
  on_step_ = {};
  fs::remove_all(recipe_.out);
  recipe_.checkpoint.merge = 0;
  recipe_.checkpoint.keep = 5;
  recipe_.steps = 5;
  train(recipe_);
  recipe_.checkpoint.merge = 3;
  recipe_.steps = 7;
  train(recipe_, checkpoint(5));
  EXPECT_EQ(sys::read_file(merged), wanted);
}

// A merge is of one run's folder: what goes on in another is refused before its first step if it makes too few there,
// whatever lies there.
TEST_F(TrainerTest, AMergeNeedsItsCheckpointsInOneFolder) {
  recipe_.checkpoint = {.every = 1, .keep = 9, .merge = 3};
  train(recipe_);
  const std::string merged = "merged/model.safetensors", wanted = sys::read_file(fs::path(recipe_.out) / merged);
  const fs::path first = recipe_.out, second = folder_ / "second";
  recipe_.out = second.string();
  const auto from = [&](int64_t step) { return (first / "checkpoints" / fmt::format("step-{:08}", step)).string(); };
  int64_t steps = 0;
  on_step_ = [&](const StepLog&, std::span<const float>) { ++steps; };
  const auto refused = [&](int64_t step) {
    steps = 0;
    const std::string error = models::error_of([&] { train(recipe_, from(step)); });
    EXPECT_EQ(error,
              fmt::format("[checkpoint.merge] the run that goes on from step {} ends with fewer checkpoints in {}; "
                          "got 3; expected at most {}; try out, the folder of the run that is resumed",
                          step, second.string(), std::max<int64_t>(6 - step, 1)));
    EXPECT_EQ(steps, 0);
  };
  for (const int64_t step : {4, 5, 6}) refused(step);
  train(recipe_, from(3));
  EXPECT_EQ(sys::read_file(second / merged), wanted);
  EXPECT_EQ(list_checkpoints(second).size(), 3u);
  refused(4);  // though there are enough of its steps
  EXPECT_EQ(list_checkpoints(second).size(), 3u);
  // Its own folder, where fewer were kept.
  recipe_.out = first.string();
  for (const int64_t step : {1, 2, 3}) fs::remove_all(from(step));
  const std::string error = models::error_of([&] { train(recipe_, from(4)); });
  EXPECT_EQ(error, "");
  fs::remove_all(from(4));
  EXPECT_NE(models::error_of([&] { train(recipe_, from(5)); }).find("expected at most 2; try checkpoint.merge=0"),
            std::string::npos);
}

// Memory is planned for a part of the batch, held out or not.
TEST_F(TrainerTest, HeldOutBatchesComeInPartsToo) {
  recipe_.eval = {.every = 6, .batches = 2};
  train(recipe_);
  const double whole = held_out_.at(0).loss;
  EXPECT_EQ(rows_max_, 4);
  recipe_.accumulate = 4;
  fs::remove_all(recipe_.out);
  train(recipe_);
  EXPECT_EQ(rows_max_, 1);
  EXPECT_EQ(held_out_.at(0).loss, whole);
}

// A set of two batches is read once, not until there were as many as were asked for.
TEST_F(TrainerTest, HeldOutBatchesEndWithTheirEpoch) {
  recipe_.eval = {.every = 6, .batches = 5};
  for (const auto& [there, drawn] : {std::pair<int64_t, int64_t>{0, 5}, {2, 2}, {9, 5}}) {
    held_out_batches_ = there;
    fs::remove_all(recipe_.out);
    train(recipe_);
    EXPECT_EQ(held_out_drawn_, drawn) << there;
  }
}

TEST_F(TrainerTest, ASignalSavesAndStops) {
  sys::catch_requests_to_stop();
  std::raise(SIGTERM);
  train(recipe_);
  sys::clear_interrupt();
  EXPECT_EQ(outcome_, Outcome::stopped);
  EXPECT_EQ(logs_.size(), 0u);
  EXPECT_TRUE(io::is_complete(checkpoint(0)));
}

TEST_F(TrainerTest, CheckpointsOfAnotherModelAreRefused) {
  train(recipe_);
  recipe_.dtype = "bf16";
  EXPECT_NE(models::error_of([&] { train(recipe_, checkpoint(6)); }).find("dtype is \"f32\" there and \"bf16\" here"),
            std::string::npos);
  EXPECT_NE(models::error_of([&] { train(recipe_, checkpoint(6), -1, true); }).find("dtype is not the recipe's"),
            std::string::npos);
  recipe_.dtype = "f32";
  EXPECT_NE(models::error_of([&] { train(recipe_, folder_.string()); }).find("is not a complete checkpoint"),
            std::string::npos);
  nlohmann::json other = models::hybrid();
  other["vocab_size"] = 60;
  write(other, tensors_of(other));
  const std::string error = models::error_of([&] { train(recipe_, checkpoint(6)); });
  EXPECT_NE(error.find("of another shape: tensor "), std::string::npos) << error;
  EXPECT_NE(error.find("[50, 32]; expected F32 [60, 32]"), std::string::npos) << error;
}

// The first moments after a step are 1 - beta1 of the clipped gradient; the norm before that is logged, and parameters
// without a gradient are not part of it.
TEST_F(TrainerTest, GradientsAreClippedToTheirNorm) {
  recipe_.steps = 1;
  recipe_.schedule.warmup = 4;
  train(recipe_);
  data::Batch batch;
  toy_batch(0, batch);
  std::vector<double> grads(initial_.size());
  double norm = 0;
  std::vector<std::pair<int64_t, int64_t>> selecting;  // places of the selection biases
  with_tensors([&](const models::MasterTensor& t) {
    if (t.role == ParamRole::router_bias) return selecting.emplace_back(t.offset, t.count()), void();
    for (auto i = static_cast<size_t>(t.offset); i < static_cast<size_t>(t.offset + t.count()); ++i) {
      for (const Seq& s : batch.seqs.seqs)
        grads[i] += (initial_[i] - 0.01 * batch.ids[static_cast<size_t>(s.start)]) / static_cast<double>(batch.trained);
      norm += grads[i] * grads[i];
    }
  });
  norm = std::sqrt(norm);
  ASSERT_GT(selecting.size(), 0u);
  for (const double clip : {0.0, norm / 4, 4 * norm}) {
    recipe_.optimizer.clip = clip;
    fs::remove_all(recipe_.out);
    const auto values = train(recipe_);
    EXPECT_NEAR(logs_.at(0).grad_norm, norm, 1e-5 * norm);
    EXPECT_EQ(logs_[0].lr, recipe_.optimizer.lr / 4);
    std::vector<double> moments = grads;
    const double scale = clip > 0 && clip < norm ? clip / norm : 1;
    for (double& m : moments) m *= (1 - recipe_.optimizer.beta1) * scale;
    expect_near(kept(1, "m."), moments, 1e-5 * scale * norm / std::sqrt(static_cast<double>(moments.size())));
    for (const auto& [offset, count] : selecting) {
      for (auto i = static_cast<size_t>(offset); i < static_cast<size_t>(offset + count); ++i)
        EXPECT_EQ(values[i], static_cast<float>(initial_[i]));
    }
  }
}

// Token tables and fused matrices are not maps between activation spaces: they keep second moments.
TEST_F(TrainerTest, MuonIsForInnerMatrices) {
  recipe_.steps = 1;
  recipe_.optimizer.kind = "muon";
  train(recipe_);
  const auto first = kept(1, "m."), second = kept(1, "v.");
  int inner = 0;
  with_tensors([&](const models::MasterTensor& t) {
    const auto some = [&](const std::vector<float>& array) {
      const auto begin = array.begin() + t.offset;
      return std::any_of(begin, begin + t.count(), [](float v) { return v != 0; });
    };
    const bool moved = t.role != ParamRole::router_bias,
               table = t.role == ParamRole::embedding || t.role == ParamRole::head || t.role == ParamRole::mamba_in;
    EXPECT_EQ(some(first), moved) << t.name;
    EXPECT_EQ(some(second), moved && (table || !t.matrix)) << t.name;
    inner += t.matrix && !table ? 1 : 0;
  });
  EXPECT_GT(inner, 8);
}

TEST_F(TrainerTest, DecayFollowsRoles) {
  recipe_.steps = 1;
  recipe_.optimizer.weight_decay = 0.5;
  const auto some = train(recipe_);
  recipe_.optimizer.no_decay = {"*"};
  const auto none = train(recipe_);
  models::MasterWeights masters(DType::f32);
  masters.load(io::find_model(folder_.string()));
  for (const models::MasterTensor& t : masters.tensors()) {
    const auto at = static_cast<size_t>(t.offset);
    const bool plain = t.name.ends_with("A_log") || t.name.ends_with(".D") || t.name.ends_with("bias") ||
                       t.name.find("norm") != std::string::npos || t.name.find("embed") != std::string::npos;
    const bool same = std::memcmp(&some[at], &none[at], static_cast<size_t>(t.count()) * sizeof(float)) == 0;
    EXPECT_EQ(same, plain) << t.name;
  }
}

}  // namespace
}  // namespace braid::train
