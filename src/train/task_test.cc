// Tasks over a real model of a few layers: where they start, that their gradients are those of their losses, and what
// changes no bit.
#include "train/task.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <fstream>
#include <functional>

#include "core/philox.h"
#include "core/ref.h"
#include "core/tape.h"
#include "io/safetensors.h"
#include "io/token_file.h"
#include "support/data.h"
#include "support/models.h"
#include "sys/read.h"
#include "train/hidden_states.h"
#include "train/language.h"
#include "train/ranks_fixture.h"
#include "train/trainer.h"

namespace braid::train {
namespace {

class TaskTest : public models::FolderTest {
 protected:
  static constexpr int kRows = 8;

  TaskTest() {
    nlohmann::json config = models::hybrid();
    write(config, tensors_of(config));
    recipe_.init = folder_.string();
    recipe_.out = (folder_ / "out").string();
    recipe_.dtype = "f32";
    recipe_.steps = 3;
    recipe_.batch = 4;
    recipe_.optimizer.lr = 1e-3;
    recipe_.data.shuffle = false;
    write_answers();
  }

  // Pairs of rated answers, and groups of four rollouts; lengths differ.
  void write_answers() {
    std::ofstream pairs(folder_ / "pairs.jsonl"), rollouts(folder_ / "rollouts.jsonl");
    std::mt19937 random(7);
    const auto ids = [&](size_t n) {
      std::vector<int> list(n);
      for (int& id : list) id = static_cast<int>(random() % 50);
      return list;
    };
    for (size_t i = 0; i < kRows; ++i) {
      pairs << nlohmann::json{{"prompt_ids", ids(2 + i)},
                              {"chosen_ids", ids(1 + i % 3)},
                              {"rejected_ids", ids(4 + i % 5)},
                              {"chosen_reward", 0.25 * static_cast<double>(i)},
                              {"rejected_reward", 1}}
            << "\n";
      const std::vector<int> answer = ids(1 + i * 3 % 7);
      std::vector<double> logprobs;
      for (size_t t = 0; t < answer.size(); ++t) logprobs.push_back(-3.5 - 0.1 * static_cast<double>(random() % 9));
      rollouts << nlohmann::json{{"group", i / 4},
                                 {"prompt_ids", {i / 4, 3, 4}},
                                 {"completion_ids", answer},
                                 {"reward", static_cast<double>(random() % 5)},
                                 {"logprobs", logprobs}}
               << "\n";
    }
  }

  void prefer(const PreferenceRecipe& preference) {
    recipe_.data.kind = "preference";
    recipe_.data.path = (folder_ / "pairs.jsonl").string();
    recipe_.preference = preference;
  }
  void earn(const PolicyRecipe& policy) {
    recipe_.data.kind = "rollouts";
    recipe_.data.path = (folder_ / "rollouts.jsonl").string();
    recipe_.policy = policy;
  }
  void distil(const DistillRecipe& distill) {
    recipe_.data.kind = "markov";
    recipe_.length = 24;
    recipe_.distill = distill;
  }
  // A model beside the student, of `config`.
  std::string another(const std::string& name, const nlohmann::json& config) {
    write(config, tensors_of(config));
    std::filesystem::create_directory(folder_ / name);
    for (const char* file : {"config.json", "model.safetensors"})
      std::filesystem::rename(folder_ / file, folder_ / name / file);
    write(models::hybrid(), tensors_of(models::hybrid()));
    return (folder_ / name).string();
  }
  // Of other widths and weights.
  std::string teacher() {
    nlohmann::json config = models::dense("llama");
    config["hidden_size"] = 48;
    return another("teacher", config);
  }
  // Every kind, the less usual words too.
  std::vector<std::pair<std::string, std::function<void()>>> all() {
    const std::string other = teacher();
    return {
        {"dpo", [this] { prefer({.kind = "dpo", .beta = 0.5, .nll = 0.2}); }},
        {"ipo", [this] { prefer({.kind = "ipo", .beta = 0.5, .length_average = true}); }},
        {"rpo", [this] { prefer({.kind = "rpo", .beta = 0.5, .eta = 2}); }},
        {"leave-one-out", [this] { earn({.advantage = "leave-one-out", .kl = 0.1}); }},
        {"sequence", [this] { earn({.advantage = "mean", .aggregate = "sequence", .ratio = "sequence"}); }},
        {"geometric", [this] { earn({.advantage = "mean", .kl = 0.1, .ratio = "sequence"}); }},
        {"capped", [this] { earn({.advantage = "std", .dual_clip = 3, .kl = 0.1, .importance_cap = 1.2}); }},
        {"entries", [this, other] { distil({.teacher = other, .temperature = 2, .ce = 0.3, .top_k = 7}); }},
        {"hidden", [this, other] { distil({.teacher = other, .ce = 0.3, .hidden = 0.8}); }},
        {"distill", [this, other] { distil({.teacher = other, .temperature = 2, .weight = 0.7, .ce = 0.3}); }},
    };
  }
  void reset() {
    const Recipe empty;
    recipe_.preference = empty.preference;
    recipe_.policy = empty.policy;
    recipe_.distill = empty.distill;
    recipe_.length = 0;
  }

  struct Run {
    std::vector<float> values{};
    std::vector<StepLog> logs{};
    std::vector<HeldOutLog> held_out{};

    double metric(size_t step, const std::string& name) const {
      for (const auto& [key, value] : logs.at(step).metrics) {
        if (key == name) return value;
      }
      return std::nan("");
    }
  };
  Run train(int threads = 1) {
    std::filesystem::remove_all(recipe_.out);
    Arena arena;
    Ctx ctx{.arena = arena, .threads = threads};
    Language language(recipe_, ctx);
    Trainer trainer(recipe_, language, ctx);
    Run out;
    trainer.train({.step = [&](const StepLog& log) { out.logs.push_back(log); },
                   .held_out = [&](const HeldOutLog& log) { out.held_out.push_back(log); }});
    const auto values = language.masters().values();
    out.values.assign(values.begin(), values.end());
    return out;
  }

  Recipe recipe_;
};

TEST_F(TaskTest, TheModelAtTheStartPrefersNothing) {
  recipe_.batch = kRows;
  for (const char* dtype : {"f32", "bf16"}) {
    recipe_.dtype = dtype;
    for (const int64_t rank : {0, 2}) {
      recipe_.lora.rank = rank;
      recipe_.lora.targets = rank > 0 ? std::vector<std::string>{"in_proj", "q_proj"} : std::vector<std::string>();
      prefer({.kind = "dpo"});
      const Run dpo = train();
      EXPECT_EQ(dpo.logs[0].loss, std::log(2.0)) << dtype << rank;
      EXPECT_EQ(dpo.metric(0, "margin"), 0);
      EXPECT_LT(dpo.logs[2].loss, std::log(2.0)) << dtype << rank;  // of the same batch
      prefer({.kind = "ipo", .beta = 0.25});
      EXPECT_EQ(train().logs[0].loss, 4);
      earn({.advantage = "mean", .kl = 0.5});
      recipe_.preference.kind = "none";
      const Run policy = train();
      EXPECT_EQ(policy.metric(0, "kl"), 0) << dtype << rank;
      EXPECT_GT(policy.metric(2, "kl"), 0);
      reset();
    }
  }
}

TEST_F(TaskTest, AModelHasNothingToLearnFromItself) {
  for (const char* dtype : {"f32", "bf16"}) {
    recipe_.dtype = dtype;
    distil({.teacher = folder_.string(), .temperature = 3});
    const Run run = train();
    EXPECT_EQ(run.logs[0].loss, 0) << dtype;
    EXPECT_EQ(run.logs[0].grad_norm, 0) << dtype;
    EXPECT_GT(run.metric(0, "ce"), 0);
  }
}

std::vector<std::string> names_in(const io::Safetensors& file) {
  std::vector<std::string> names;
  for (const io::StoredTensor& t : file.tensors()) names.push_back(t.name);
  return names;
}

// Nor from its own hidden states, whose layers are matched one to one and need no map; of another width they come
// nearer, by a map that the run resumes bit for bit, with its moments and its running mean, and that no model has.
TEST_F(TaskTest, HiddenStatesFollowTheTeacher) {
  distil({.teacher = folder_.string(), .hidden = 1});
  const Run itself = train();
  EXPECT_NEAR(itself.metric(0, "hidden"), 0, 1e-12);
  EXPECT_NEAR(itself.logs[0].grad_norm, 0, 1e-6);
  const auto state = [&](int64_t step, const char* file) {
    return std::filesystem::path(recipe_.out) / "checkpoints" / fmt::format("step-{:08}", step) / file;
  };
  const auto has_map = [](const io::Safetensors& file) {
    for (const char* kind : {"m.", "v.", "master.", "ema."}) {
      if (!file.find(std::string(kind) + "distill.hidden_map")) return false;
    }
    return true;
  };
  EXPECT_FALSE(has_map(io::Safetensors(state(3, "training/state.safetensors"))));

  distil({.teacher = teacher(), .weight = 0, .hidden = 1});
  recipe_.steps = 40;
  recipe_.ema_decay = 0.9;
  recipe_.checkpoint = {.every = 20, .keep = 2, .merge = 2};
  const Run whole = train();
  EXPECT_LT(whole.metric(39, "hidden"), 0.8 * whole.metric(0, "hidden"));
  for (const StepLog& log : whole.logs)
    EXPECT_NEAR(log.loss, whole.metric(static_cast<size_t>(log.step - 1), "hidden"), 1e-9);
  EXPECT_TRUE(has_map(io::Safetensors(state(40, "training/state.safetensors"))));
  const io::Safetensors start(folder_ / "model.safetensors");
  for (const char* model : {"checkpoints/step-00000040", "ema", "merged"})
    EXPECT_EQ(names_in(io::Safetensors(std::filesystem::path(recipe_.out) / model)), names_in(start)) << model;
  const std::string wanted = sys::read_file(state(40, "training/state.safetensors"));
  std::filesystem::remove_all(state(40, ""));
  Arena arena;
  Ctx ctx{.arena = arena, .threads = 1};
  Language language(recipe_, ctx);
  Trainer trainer(recipe_, language, ctx);
  trainer.resume(state(20, ""));
  std::vector<double> losses;
  trainer.train({.step = [&](const StepLog& log) { losses.push_back(log.loss); }});
  ASSERT_EQ(losses.size(), 20u);
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_EQ(losses[i], whole.logs[20 + i].loss) << i;
  const auto values = language.masters().values();
  EXPECT_EQ(std::vector<float>(values.begin(), values.end()), whole.values);
  EXPECT_EQ(sys::read_file(state(40, "training/state.safetensors")), wanted);
}

// The gradient of all uses of the map together is the derivative of the loss of a batch, and the norm that clips counts
// it.
TEST_F(TaskTest, TheMapIsTrainedAsParametersAre) {
  distil({.teacher = teacher(), .ce = 0.3, .hidden = 2});
  Arena arena;
  Ctx ctx{.arena = arena, .threads = 1};
  Language language(recipe_, ctx);
  models::MasterWeights& masters = language.masters();
  const models::MasterTensor& map = masters.tensor("distill.hidden_map");
  EXPECT_EQ(map.shape, (Shape{48, 32}));
  EXPECT_EQ(language.params().back()->name, map.name);
  const int64_t rows = language.draw(0, false);
  const auto run = [&](bool backward) {
    Sums sums;
    language.run(ctx, 0, rows, backward, sums);
    masters.sum_uses(1);
    return sums.mean("loss");
  };
  masters.zero_grads(1);
  run(true);
  double squares = 0, of_map = 0;
  for (const models::MasterTensor& t : masters.tensors()) {
    for (int64_t i = t.offset; i < t.offset + t.count(); ++i) {
      const double g = static_cast<double>(masters.grads()[static_cast<size_t>(i)]);
      squares += g * g;
      of_map += &t == &map ? g * g : 0;
    }
  }
  ASSERT_GT(of_map, 1e-3 * squares);
  const auto along = [&](double step) {
    for (int64_t i = map.offset; i < map.offset + map.count(); ++i)
      masters.values()[static_cast<size_t>(i)] += static_cast<float>(step) * masters.grads()[static_cast<size_t>(i)];
  };
  const double step = 1e-3 / of_map;  // changes the loss by about 1e-3
  along(step);
  const double above = run(false);
  along(-2 * step);
  const double below = run(false);
  EXPECT_NEAR((above - below) / (2 * step * of_map), 1, 0.01);
  const Run trained = train();
  EXPECT_NEAR(trained.logs[0].grad_norm / std::sqrt(squares), 1, 1e-6);
}

// With adapters the map is trained as well, and is not written to the adapter file.
TEST_F(TaskTest, AdaptersAreWrittenWithoutTheMap) {
  distil({.teacher = teacher(), .hidden = 1});
  recipe_.lora.rank = 2;
  recipe_.lora.targets = {"in_proj", "q_proj"};
  recipe_.checkpoint = {.every = 2, .keep = 9};
  const Run whole = train();
  const auto checkpoint = [&](const char* step) { return std::filesystem::path(recipe_.out) / "checkpoints" / step; };
  for (const std::string& name : names_in(io::Safetensors(checkpoint("step-00000003") / "adapter_model.safetensors")))
    EXPECT_NE(name.find("lora_"), std::string::npos) << name;
  Arena arena;
  Ctx ctx{.arena = arena, .threads = 1};
  Language language(recipe_, ctx);
  Trainer trainer(recipe_, language, ctx);
  const auto values = language.masters().values();
  const std::vector<float> start(values.begin(), values.end());
  trainer.resume(checkpoint("step-00000002"));
  trainer.train({});
  EXPECT_EQ(std::vector<float>(values.begin(), values.end()), whole.values);
  const models::MasterTensor& map = language.masters().tensor("distill.hidden_map");
  EXPECT_FALSE(
      std::equal(start.begin() + map.offset, start.begin() + map.offset + map.count(), values.begin() + map.offset));
}

// Sums of ranks are those of one rank; with parallel.exact bit for bit.
TEST_F(TaskTest, RanksShareTheMap) {
  distil({.teacher = teacher(), .ce = 0.3, .hidden = 0.8});
  recipe_.steps = 5;
  const RanksRun one = train_on_ranks(recipe_, 1);
  const auto on_two = [&](auto&& change) {
    Recipe recipe = recipe_;
    recipe.out = (folder_ / "two").string();
    std::filesystem::remove_all(recipe.out);
    change(recipe.parallel);
    return train_on_ranks(recipe, 2);
  };
  for (const int64_t zero : {0, 1, 2}) {
    const RanksRun two = on_two([&](ParallelRecipe& p) { p.zero = zero; });
    ASSERT_EQ(two.logs.size(), one.logs.size());
    for (size_t i = 0; i < one.logs.size(); ++i) {
      EXPECT_NEAR(two.logs[i].loss / one.logs[i].loss, 1, 1e-5) << zero;
      EXPECT_NEAR(two.logs[i].grad_norm / one.logs[i].grad_norm, 1, 1e-5) << zero;
    }
  }
  EXPECT_EQ(on_two([](ParallelRecipe& p) { p.exact = true; }).values, one.values);
}

TEST(HiddenStates, LayersAreMatchedInProportion) {
  EXPECT_EQ(matched_layers(4, 4), (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(matched_layers(2, 6), (std::vector<int64_t>{3, 6}));
  EXPECT_EQ(matched_layers(4, 6), (std::vector<int64_t>{2, 3, 5, 6}));
  EXPECT_EQ(matched_layers(5, 2), (std::vector<int64_t>{1, 1, 1, 2, 2}));
  EXPECT_EQ(matched_layers(3, 1), (std::vector<int64_t>{1, 1, 1}));
}

// The gradients of map and states are the derivatives of 1 - cos(w x, y), computed again in complex numbers.
TEST(HiddenStates, TheMapHasTheGradientOfItsLoss) {
  constexpr size_t kTokens = 3, kWidth = 4, kTaught = 5;
  Arena arena;
  Tape tape;
  Ctx ctx{.arena = arena, .threads = 1, .tape = &tape};
  std::vector<float> values(kTaught * kWidth), gradients(kTaught * kWidth);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 0.5f * normal4({.seed = 7}, static_cast<uint64_t>(i))[0];
  const Shape shape{kTaught, kWidth};
  Param map;
  map.value = dense_weight(view_of(values.data(), shape));
  map.grad = mut_view_of(gradients.data(), shape);
  SeqMap seqs;
  seqs.add(kTokens);
  nn::StateView state;
  nn::Run run{.ctx = ctx, .seqs = seqs, .state = state};
  const auto filled = [&](int64_t width, uint64_t seed) {
    Tensor t(arena, DType::f32, {static_cast<int64_t>(kTokens), width});
    for (int64_t i = 0; i < t.view().count(); ++i)
      set_element(t.mut(), i, static_cast<double>(normal4({.seed = seed}, static_cast<uint64_t>(i))[0]));
    return t;
  };
  const Tensor x = filled(kWidth, 1), y = filled(kTaught, 2), weight(arena, DType::f32, {kTokens});
  for (int64_t t = 0; t < static_cast<int64_t>(kTokens); ++t)
    set_element(weight.mut(), t, 0.5 + static_cast<double>(t));
  tape.require_grad(x);
  hidden_loss(run, x, y, weight, &map);
  tape.backward(ctx);
  std::vector<double> inputs = to_doubles(map.value.codes);
  const std::vector<double> xs = to_doubles(x.view()), ys = to_doubles(y.view()), weights = to_doubles(weight.view());
  inputs.insert(inputs.end(), xs.begin(), xs.end());
  using Complex = std::complex<double>;
  const std::vector<double> gradient = complex_step(inputs, [&](const std::vector<Complex>& p) {
    Complex total = 0;
    for (size_t t = 0; t < kTokens; ++t) {
      Complex dot = 0, squares = 0;
      double taught = 0;
      for (size_t r = 0; r < kTaught; ++r) {
        Complex mapped = 0;
        for (size_t c = 0; c < kWidth; ++c) mapped += p[r * kWidth + c] * p[kTaught * kWidth + t * kWidth + c];
        dot += mapped * ys[t * kTaught + r];
        squares += mapped * mapped;
        taught += ys[t * kTaught + r] * ys[t * kTaught + r];
      }
      total += weights[t] * (1.0 - dot / std::sqrt(squares * taught));
    }
    return total;
  });
  for (size_t i = 0; i < kTaught * kWidth; ++i) EXPECT_NEAR(static_cast<double>(gradients[i]), gradient[i], 2e-6) << i;
  const Tensor dx = tape.grad(x);
  for (size_t i = 0; i < kTokens * kWidth; ++i)
    EXPECT_NEAR(element(dx.view(), static_cast<int64_t>(i)), gradient[kTaught * kWidth + i], 2e-6) << i;
}

TEST_F(TaskTest, PartsAndThreadsChangeNoBit) {
  for (const auto& [name, choose] : all()) {
    reset();
    choose();
    recipe_.accumulate = 1;
    const Run whole = train();
    for (const int64_t parts : {2, 3, 4}) {
      recipe_.accumulate = parts;
      recipe_.recompute = parts == 3 ? "full" : "none";
      const Run cut = train(2);
      EXPECT_EQ(cut.values, whole.values) << name << parts;
      for (size_t i = 0; i < whole.logs.size(); ++i) {
        EXPECT_EQ(cut.logs[i].loss, whole.logs[i].loss) << name << parts;
        EXPECT_EQ(cut.logs[i].metrics, whole.logs[i].metrics) << name << parts;
      }
    }
  }
}

// Along the gradient the loss rises by its squared norm.
TEST_F(TaskTest, GradientsAreThoseOfTheLoss) {
  for (const auto& [name, choose] : all()) {
    reset();
    choose();
    Arena arena;
    Ctx ctx{.arena = arena, .threads = 1};
    Language language(recipe_, ctx);
    models::MasterWeights& masters = language.masters();
    const int64_t rows = language.draw(0, false);
    const auto loss_at = [&] {
      Sums sums;
      language.run(ctx, 0, rows, false, sums);
      return sums.mean("loss");
    };
    // Away from the start, where all ratios are 1 and all odds even.
    const auto values = masters.values();
    for (size_t i = 0; i < values.size(); ++i) values[i] *= 1 + 0.02f * static_cast<float>(i % 7);
    Sums sums;
    masters.zero_grads(1);
    language.run(ctx, 0, rows, true, sums);
    masters.sum_uses(1);
    EXPECT_EQ(sums.mean("loss"), loss_at()) << name;
    const std::vector<float> grads(masters.grads().begin(), masters.grads().end()), start(values.begin(), values.end());
    double squares = 0;
    for (const float g : grads) squares += static_cast<double>(g) * static_cast<double>(g);
    const double step = 2e-3 / std::sqrt(squares);  // a distance of 0.002 among weights of order 0.1
    const auto move = [&](double by) {
      for (size_t i = 0; i < values.size(); ++i) values[i] = start[i] + static_cast<float>(by) * grads[i];
      return loss_at();
    };
    const double rise = (move(step) - move(-step)) / (2 * step);
    EXPECT_NEAR(rise, squares, 5e-3 * squares) << name;
  }
}

// Ranks add up numbers by their order: rows without a target name the same sums as others.
TEST_F(TaskTest, RowsWithoutTargetsNameTheSameSums) {
  io::TokenFileWriter corpus(folder_ / "corpus", 50);
  for (int32_t i = 0; i < 12; ++i) corpus.add(std::vector<int32_t>(24, i));
  corpus.finish();
  for (const auto& [name, use] : all()) {
    reset();
    recipe_.data.path.clear();
    use();
    if (recipe_.data.kind == "markov") {
      recipe_.data.kind = "indexed";
      recipe_.data.path = (folder_ / "corpus").string();
    }
    recipe_.data.validation = 0.5;
    recipe_.eval = {.every = 1, .batches = 1};
    recipe_.batch = 7;  // the last row is beyond the held-out ones
    std::filesystem::remove_all(recipe_.out);
    Arena arena;
    Ctx ctx{.arena = arena};
    Language language(recipe_, ctx);
    ASSERT_EQ(language.draw(0, true), 7);
    Sums first, last;
    language.run(ctx, 0, 1, false, first);
    language.run(ctx, 6, 7, false, last);
    ASSERT_EQ(first.all().size(), last.all().size()) << name;
    for (size_t i = 0; i < first.all().size(); ++i) {
      EXPECT_STREQ(first.all()[i].name, last.all()[i].name) << name;
      EXPECT_GT(first.all()[i].count, 0) << name;
      EXPECT_EQ(last.all()[i].count, 0) << name;
      EXPECT_EQ(last.all()[i].sum, 0) << name;
    }
  }
}

// A row's loss does not depend on its batch: no padding, and no reference by position.
TEST_F(TaskTest, ABatchIsTheMeanOfItsRows) {
  recipe_.optimizer.lr = 0;
  recipe_.optimizer.weight_decay = 0;
  for (const bool pairs : {true, false}) {
    reset();
    pairs ? prefer({.kind = "rpo", .nll = 0.5}) : earn({.advantage = "mean", .kl = 0.1, .aggregate = "sequence"});
    recipe_.batch = kRows;
    recipe_.steps = 1;
    const Run whole = train();
    recipe_.batch = 1;
    recipe_.steps = kRows;
    double sum = 0;
    for (const StepLog& log : train().logs) sum += log.loss;
    EXPECT_EQ(sum / kRows, whole.logs[0].loss) << pairs;
  }
}

// Shuffled rows keep what the start says of them, and held-out rows are others.
TEST_F(TaskTest, TheReferenceFollowsTheRows) {
  prefer({.kind = "ipo", .beta = 0.25});
  recipe_.data.shuffle = true;
  recipe_.data.validation = 0.25;
  recipe_.eval = {.every = 1, .batches = 1};
  recipe_.batch = 2;
  recipe_.steps = 9;
  recipe_.optimizer.lr = 0;
  const Run run = train();
  for (const StepLog& log : run.logs) EXPECT_EQ(log.loss, 4);
  ASSERT_EQ(run.held_out.size(), 9u);
  for (const HeldOutLog& log : run.held_out) EXPECT_EQ(log.loss, 4);
}

// Fewer rows are held out than a batch has: it is filled up with the same rows, which do not count.
TEST_F(TaskTest, HeldOutRowsMayBeFewerThanABatch) {
  prefer({.kind = "dpo"});
  recipe_.data.validation = 0.25;
  recipe_.eval = {.every = 1, .batches = 1};
  recipe_.steps = 2;
  recipe_.optimizer.lr = 0;
  const Run run = train();
  ASSERT_EQ(run.held_out.size(), 2u);
  for (const HeldOutLog& log : run.held_out) EXPECT_NEAR(log.loss, std::log(2.0), 1e-12);
}

// All entries are the distribution; a few of them say less than it does, but never more.
TEST_F(TaskTest, EntriesApproachTheTeacher) {
  const std::string other = teacher();
  recipe_.steps = 1;
  double last = 0;
  for (const int64_t count : {1, 5, 20, 50}) {
    distil({.teacher = other, .temperature = 2, .top_k = count});
    const double loss = train().logs[0].loss;
    EXPECT_GT(loss, last) << count;
    last = loss;
  }
  distil({.teacher = other, .temperature = 2});
  EXPECT_NEAR(train().logs[0].loss, last, 2e-3 * last);  // of 3e-4, in FP32
}

// A cache holds what the teacher would say, for every epoch; one of something else is refused.
TEST_F(TaskTest, ACacheIsTheTeacher) {
  const std::string other = teacher();
  const auto batches = [&](int64_t count) {
    std::vector<int64_t> ids(static_cast<size_t>(count * 3 * 9));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>((i * 31 + 5) % 50);
    io::SafetensorsWriter file(folder_ / "ids.safetensors", {{"batches", DType::i64, {count, 3, 9}}});
    file.write("batches", view_of(ids.data(), {count, 3, 9}));
    file.finish();
  };
  batches(2);
  recipe_.data.kind = "ids";
  recipe_.data.path = (folder_ / "ids.safetensors").string();
  recipe_.batch = 0;
  recipe_.steps = 5;
  recipe_.distill = {.teacher = other, .temperature = 2, .top_k = 6};
  const Run beside = train();
  recipe_.distill.cache = (folder_ / "cache").string();
  for (int pass = 0; pass < 2; ++pass) {  // made, then found
    const Run cached = train();
    EXPECT_EQ(cached.values, beside.values);
    for (size_t i = 0; i < 5; ++i) EXPECT_EQ(cached.logs[i].loss, beside.logs[i].loss);
  }
  const auto refusal_of = [&] { return support::error_of([&] { train(); }); };
  recipe_.distill.temperature = 3;
  EXPECT_NE(refusal_of().find("cache] was made with another temperature; got 2.0; expected 3.0"), std::string::npos)
      << refusal_of();
  recipe_.distill.temperature = 2;
  batches(4);
  EXPECT_NE(refusal_of().find("was made with another data"), std::string::npos) << refusal_of();
  batches(2);
  std::filesystem::remove(folder_ / "cache" / "DONE");
  EXPECT_NE(refusal_of().find("is not a cache of a teacher"), std::string::npos) << refusal_of();
  distil({.teacher = other, .top_k = 6, .cache = (folder_ / "endless").string()});
  recipe_.data.path.clear();
  recipe_.batch = 2;
  EXPECT_NE(refusal_of().find("[distill.cache] cannot hold the rows of this data; got no end"), std::string::npos)
      << refusal_of();
}

// Batches of another size and with other targets left out are of the same rows, and find the entries of each; other
// lengths or shares held out make other rows.
TEST_F(TaskTest, ACacheOutlivesTheBatch) {
  {
    io::TokenFileWriter file(folder_ / "corpus", 50);
    std::vector<int32_t> document;
    for (int32_t d = 1; d < 40; ++d) {
      document.assign(static_cast<size_t>(3 + d % 17), 0);
      for (size_t i = 0; i < document.size(); ++i) document[i] = (static_cast<int32_t>(i) * 31 + d * 7) % 50;
      file.add(document);
    }
    file.finish();
  }
  const std::string other = teacher();
  distil({.teacher = other, .temperature = 2, .top_k = 6});
  recipe_.data = {.kind = "indexed", .path = (folder_ / "corpus").string()};
  const auto losses = [&](const std::string& cache) {
    recipe_.distill.cache = cache;
    std::vector<double> list;
    for (const StepLog& log : train().logs) list.push_back(log.loss);
    return list;
  };
  const std::string cache = (folder_ / "cache").string();
  EXPECT_EQ(losses(cache), losses(""));
  recipe_.steps = 12;  // epochs, shuffled
  recipe_.loss.goldfish_k = 3;
  for (const int64_t batch : {1, 5, 7}) {
    recipe_.batch = batch;
    EXPECT_EQ(losses(cache), losses("")) << batch;
  }
  const auto refusal = [&] { return support::error_of([&] { losses(cache); }); };
  recipe_.length = 23;
  EXPECT_NE(refusal().find("was made with another data"), std::string::npos) << refusal();
  recipe_.length = 24;
  recipe_.data.validation = 0.2;
  EXPECT_NE(refusal().find("was made with another data"), std::string::npos) << refusal();
}

TEST_F(TaskTest, ATeachersAdvantageIsItsLogRatio) {
  earn({.advantage = "teacher"});
  recipe_.distill.teacher = folder_.string();
  const Run itself = train();
  EXPECT_EQ(itself.logs[0].grad_norm, 0);
  recipe_.distill.teacher = teacher();
  recipe_.policy.clip_high = 100;
  recipe_.policy.clip_low = 1;
  recipe_.steps = 60;
  recipe_.batch = kRows;
  const Run run = train();
  EXPECT_GT(run.logs[0].grad_norm, 0);
  EXPECT_NE(run.logs.back().loss, run.logs.front().loss);
}

TEST_F(TaskTest, WhatDoesNotFitIsRefused) {
  const auto refusal_of = [&] { return support::error_of([&] { train(); }); };
  prefer({.kind = "dpo"});
  recipe_.data.kind = "markov";
  EXPECT_NE(refusal_of().find("[data.kind] [preference] reads other data"), std::string::npos) << refusal_of();
  reset();
  prefer({});
  EXPECT_NE(refusal_of().find("expected [preference] kind"), std::string::npos) << refusal_of();
  earn({.advantage = "teacher"});
  EXPECT_NE(refusal_of().find("there is no teacher"), std::string::npos) << refusal_of();
  const DistillRecipe unread[] = {{.temperature = 2}, {.weight = 2},  {.ce = 1},
                                  {.top_k = 4},       {.cache = "c"}, {.hidden = 1}};
  for (DistillRecipe distill : unread) {
    distill.teacher = folder_.string();
    recipe_.distill = distill;
    EXPECT_NE(refusal_of().find("cannot be combined with a teacher that is the advantage"), std::string::npos)
        << refusal_of();
  }
  reset();
  earn({.advantage = "mean", .replay_routes = true});
  EXPECT_NE(refusal_of().find("answers of a file have no recorded experts"), std::string::npos) << refusal_of();
  reset();
  recipe_.data = {};
  distil({.hidden = 1});
  EXPECT_NE(refusal_of().find("[distill.hidden] there is no teacher"), std::string::npos) << refusal_of();
  recipe_.distill = {.teacher = folder_.string(), .top_k = 4, .cache = (folder_ / "cache").string(), .hidden = 1};
  recipe_.data.kind = "markov";
  EXPECT_NE(refusal_of().find("[distill.hidden] cannot be combined with distill.cache"), std::string::npos)
      << refusal_of();
  reset();
  distil({.teacher = support::data("huginn")});
  EXPECT_NE(refusal_of().find("[distill.teacher] a model of recurrent depth cannot teach"), std::string::npos);
  const data::DataSpec before = recipe_.data;
  earn({.advantage = "teacher"});
  EXPECT_NE(refusal_of().find("[distill.teacher] a model of recurrent depth cannot teach"), std::string::npos);
  reset();
  recipe_.data = before;
  nlohmann::json config = models::dense("llama");
  config["vocab_size"] = 51;
  distil({.teacher = another("wide", config)});
  EXPECT_EQ(refusal_of(), "[distill.teacher] has another vocabulary; got 51 tokens; expected 50, as the student has");
}

}  // namespace
}  // namespace braid::train
