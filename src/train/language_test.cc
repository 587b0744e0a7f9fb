// A recipe over a real model of a few layers: what language modelling does beyond the loop of trainer_test.cc.
#include "train/language.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "core/integers.h"
#include "io/token_file.h"
#include "support/data.h"
#include "support/error_of.h"
#include "support/models.h"
#include "train/ranks_fixture.h"
#include "train/trainer.h"

namespace braid::train {
namespace {

class LanguageTest : public models::FolderTest {
 protected:
  static constexpr int64_t kPadding = 1;

  LanguageTest() {
    nlohmann::json config = models::dense("llama");
    config["pad_token_id"] = kPadding;
    write(config, tensors_of(config));
    recipe_.init = folder_.string();
    recipe_.out = (folder_ / "out").string();
    recipe_.dtype = "f32";
    recipe_.steps = 3;
    recipe_.batch = 4;
    recipe_.length = 32;
    recipe_.data.kind = "markov";
    recipe_.optimizer.weight_decay = 0;
    recipe_.optimizer.lr = 1e-2;
  }

  // What the steps of the recipe did.
  struct Run {
    std::vector<models::MasterTensor> tensors{};
    std::vector<std::vector<float>> values{};  // masters before the first step and after each
    std::vector<StepLog> logs{};
    std::vector<HeldOutLog> held_out{};

    int64_t changed(const models::MasterTensor& t, int64_t row, int64_t cols) const {  // in all steps
      int64_t n = 0;
      for (auto i = static_cast<size_t>(t.offset + row * cols); i < static_cast<size_t>(t.offset + (row + 1) * cols);
           ++i)
        n += values.front()[i] != values.back()[i] ? 1 : 0;
      return n;
    }
    static double metric(const std::vector<std::pair<const char*, double>>& metrics,
                         const std::string& name) {  // NaN if there is none
      for (const auto& [key, value] : metrics) {
        if (key == name) return value;
      }
      return std::nan("");
    }
    double metric(size_t step, const std::string& name) const { return metric(logs.at(step).metrics, name); }
  };
  Run train(int threads = 1) {
    std::filesystem::remove_all(recipe_.out);
    Arena arena;
    Ctx ctx{.arena = arena, .threads = threads};
    Language language(recipe_, ctx);
    models::MasterWeights& masters = language.masters();
    Run out{.tensors = {masters.tensors().begin(), masters.tensors().end()}};
    const auto keep = [&] { out.values.emplace_back(masters.values().begin(), masters.values().end()); };
    keep();
    Trainer trainer(recipe_, language, ctx);
    trainer.train({.step =
                       [&](const StepLog& log) {
                         out.logs.push_back(log);
                         keep();
                       },
                   .held_out = [&](const HeldOutLog& log) { out.held_out.push_back(log); }});
    return out;
  }
  // A hybrid with routers and a prediction block.
  void write_hybrid(bool groups = true) {
    nlohmann::json config = models::hybrid();
    if (!groups) config["n_group"] = config["topk_group"] = 1;
    config["num_nextn_predict_layers"] = 1;
    config["mtp_hybrid_override_pattern"] = "*E";
    write(config, tensors_of(config));
  }

  Recipe recipe_;
};

TEST_F(LanguageTest, LookingUpPaddingTrainsNothing) {
  const Run run = train();
  const models::MasterTensor& embedding = run.tensors[0];
  ASSERT_EQ(embedding.shape, (Shape{50, 32}));
  int64_t trained = 0;
  for (int64_t row = 0; row < 50; ++row) trained += run.changed(embedding, row, 32) > 0 ? 1 : 0;
  EXPECT_EQ(run.changed(embedding, kPadding, 32), 0);
  EXPECT_GT(trained, 25);
}

// The rows of A are as wide as those of the embedding: row kPadding of A must still be trained.
TEST_F(LanguageTest, PaddingIsNoRowOfAnAdapter) {
  recipe_.lora.rank = 2;
  recipe_.lora.targets = {"q_proj"};
  const Run run = train();
  ASSERT_EQ(run.tensors[0].shape, (Shape{2, 32}));
  EXPECT_EQ(run.changed(run.tensors[0], 0, 32), 32);
  EXPECT_EQ(run.changed(run.tensors[0], kPadding, 32), 32);
}

// Nor is one that A has too few rows for.
TEST_F(LanguageTest, PaddingBeyondTheRowsOfAnAdapterChangesNothing) {
  recipe_.lora.rank = 2;
  recipe_.lora.targets = {"q_proj"};
  nlohmann::json config = models::dense("llama");
  write(config, tensors_of(config));
  const Run want = train();
  config["pad_token_id"] = 40;
  write(config, tensors_of(config));
  const Run run = train();
  ASSERT_EQ(run.tensors[0].shape, (Shape{2, 32}));
  EXPECT_EQ(run.values, want.values);
  EXPECT_NE(run.values.front(), run.values.back());
}

TEST_F(LanguageTest, PartsAndThreadsChangeNoBit) {
  for (const bool balance_by_quantiles : {false, true}) {
    write_hybrid(!balance_by_quantiles);
    recipe_.loss = {.mtp_scale = 0.3,
                    .z = 1e-2,
                    .aux = 1e-1,
                    .seq_aux = 1e-1,
                    .router_z = 1e-2,
                    .router_bias_rate = balance_by_quantiles ? 0 : 1e-2,
                    .quantile = balance_by_quantiles ? 0.5 : 0,
                    .capacity = balance_by_quantiles ? 0.75 : 0};
    const Run whole = train();
    for (const int64_t parts : {2, 3, 4}) {
      recipe_.accumulate = parts;
      const Run cut = train(2);
      EXPECT_EQ(cut.values.back(), whole.values.back()) << parts;
      for (size_t i = 0; i < whole.logs.size(); ++i) {
        EXPECT_EQ(cut.logs[i].loss, whole.logs[i].loss) << parts;
        EXPECT_EQ(cut.logs[i].metrics, whole.logs[i].metrics) << parts;
      }
    }
  }
}

// The mean over samples of the mean over their tokens: long samples weigh as much as short ones, in any parts.
TEST_F(LanguageTest, TheLossMayBeAMeanOverSamples) {
  io::TokenFileWriter corpus(folder_ / "corpus", 50);
  for (size_t i = 0; i < 40; ++i) corpus.add(std::vector<int32_t>(2 + i * 7 % 13, static_cast<int32_t>(i)));
  corpus.finish();
  recipe_.data.kind = "indexed";
  recipe_.data.path = (folder_ / "corpus").string();
  recipe_.optimizer.lr = 0;
  recipe_.steps = 1;
  const Run by_token = train();
  recipe_.loss.mean = "sample";
  const Run whole = train();
  Arena arena;
  Ctx ctx{.arena = arena, .threads = 1};
  Language language(recipe_, ctx);
  const data::Batch batch = language.data().batch(0);
  double sum = 0;
  int64_t samples = 0;
  nn::StateView state;
  nn::Run run{.ctx = ctx, .seqs = batch.seqs, .state = state, .numerics = numerics_of(recipe_)};
  const Tensor losses = language.model()->losses_of(run, integers(arena, batch.ids), integers(arena, batch.targets));
  for (const Seq& s : batch.seqs.seqs) {
    double own = 0, n = 0;
    for (int64_t t = s.start; t < s.start + s.len; ++t) {
      own += static_cast<double>(losses.view().as<float>()[t]);
      n += batch.targets[static_cast<size_t>(t)] != data::kMasked ? 1 : 0;
    }
    sum += n > 0 ? own / n : 0;
    samples += n > 0 ? 1 : 0;
  }
  EXPECT_NEAR(whole.logs[0].loss, sum / static_cast<double>(samples), 1e-9);
  EXPECT_NE(whole.logs[0].grad_norm, by_token.logs[0].grad_norm);
  recipe_.accumulate = 3;
  const Run cut = train(2);
  EXPECT_EQ(cut.logs[0].loss, whole.logs[0].loss);
  EXPECT_EQ(cut.logs[0].grad_norm, whole.logs[0].grad_norm);
}

// Each term is trained and logged under its own name, scaled by its factor, and is not part of "loss".
TEST_F(LanguageTest, EveryTermOfTheLossIsTrainedAndShownApart) {
  write_hybrid();
  recipe_.steps = 1;
  const Run plain = train();
  struct Term {
    double LossRecipe::*factor;
    const char* name;
    bool scaled;  // the logged mean includes its factor
  };
  for (const Term& term :
       {Term{&LossRecipe::z, "z_loss", true}, Term{&LossRecipe::aux, "aux_loss", true},
        Term{&LossRecipe::seq_aux, "seq_aux_loss", true}, Term{&LossRecipe::global_aux, "global_aux_loss", true},
        Term{&LossRecipe::router_z, "router_z_loss", true}, Term{&LossRecipe::mtp_scale, "mtp_loss", false}}) {
    EXPECT_TRUE(std::isnan(plain.metric(0, term.name))) << term.name;
    recipe_.loss.*term.factor = 0.125;
    const Run once = train();
    recipe_.loss.*term.factor = 0.25;
    const Run twice = train();
    recipe_.loss.*term.factor = 0;
    EXPECT_EQ(once.logs[0].loss, plain.logs[0].loss) << term.name;
    EXPECT_NE(once.logs[0].grad_norm, plain.logs[0].grad_norm) << term.name;
    EXPECT_NE(twice.logs[0].grad_norm, once.logs[0].grad_norm) << term.name;
    EXPECT_NE(once.values.back(), plain.values.back()) << term.name;
    EXPECT_GT(once.metric(0, term.name), 0) << term.name;
    const double wanted = (term.scaled ? 2 : 1) * once.metric(0, term.name);
    EXPECT_NEAR(twice.metric(0, term.name), wanted, 1e-6 * wanted) << term.name;
  }
}

// After a step the selection biases move by their rate, each up or down; a skipped step moves none.
TEST_F(LanguageTest, RouterBiasesMoveWithTheSteps) {
  write_hybrid();
  constexpr float kRate = 0.0625f;
  recipe_.steps = 24;
  recipe_.optimizer.lr = 1e-4;  // so that losses differ by batch, not by what was learnt
  recipe_.loss.router_bias_rate = kRate;
  recipe_.spike = {.z = 1e-6, .window = 2, .patience = 0};  // anything above the last two is a spike
  const Run run = train();
  int skipped = 0, moved = 0;
  for (size_t i = 0; i < run.logs.size(); ++i) {
    const std::vector<float>&before = run.values[i], &after = run.values[i + 1];
    EXPECT_EQ(before == after, run.logs[i].skipped) << i;
    skipped += run.logs[i].skipped ? 1 : 0;
    for (const models::MasterTensor& t : run.tensors) {
      if (t.role != ParamRole::router_bias || run.logs[i].skipped) continue;
      for (auto at = static_cast<size_t>(t.offset); at < static_cast<size_t>(t.offset + t.count()); ++at) {
        const float by = std::fabs(after[at] - before[at]);
        EXPECT_TRUE(by == 0 || std::fabs(by - kRate) < 1e-6f) << t.name << " " << by;
        moved += by > 0 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(skipped, 2);
  EXPECT_GT(moved, 20);
}

// The config may change under the model's name, and each of its words decides what a run computes.
TEST_F(LanguageTest, AChangedConfigIsADifference) {
  Arena arena;
  Ctx ctx{.arena = arena};
  const Language language(recipe_, ctx);
  const Facts facts = language.facts();
  const std::string stored = manifest_text(manifest_of(recipe_, facts, recipe_.out));
  nlohmann::json config = models::dense("llama");
  int words = 0;
  for (const auto& [key, value] : config.items()) {
    nlohmann::json other = nlohmann::json::parse(stored);
    ASSERT_TRUE(other.contains("model." + key)) << key;
    other["model." + key] = "another";
    const auto list =
        differences(io::Json::parse(other.dump(), "manifest.json"), manifest_of(recipe_, facts, recipe_.out));
    ASSERT_EQ(list.size(), 1u) << key;
    EXPECT_TRUE(list[0].starts_with("model." + key + " is ")) << list[0];
    ++words;
  }
  EXPECT_GT(words, 8);
}

// One token in the middle, far from the batches of the first steps.
TEST_F(LanguageTest, AnyTokenIsContentOfTheData) {
  recipe_.data.kind = "indexed";
  const auto content = [&](const char* name, size_t changed) {
    std::vector<int32_t> ids(200'000, 7);
    if (changed < ids.size()) ids[changed] = 8;
    io::TokenFileWriter corpus(folder_ / name, 50);
    corpus.add(ids);
    corpus.finish();
    recipe_.data.path = (folder_ / name).string();
    Arena arena;
    Ctx ctx{.arena = arena};
    for (const auto& [fact, value] : Language(recipe_, ctx).facts()) {
      if (fact == kContent) return value;
    }
    return std::string();
  };
  const std::string whole = content("whole", 200'000);
  EXPECT_TRUE(whole.starts_with("\"all ")) << whole;
  EXPECT_EQ(content("again", 200'000), whole);
  EXPECT_NE(content("changed", 123'457), whole);
}

// Of the same rows: factors and means are those of training, over one held-out batch or two.
TEST_F(LanguageTest, HeldOutTermsAreThoseOfTraining) {
  write_hybrid();
  io::TokenFileWriter corpus(folder_ / "corpus", 50);
  for (int32_t i = 0; i < 40; ++i) corpus.add(std::vector<int32_t>(static_cast<size_t>(3 + i * 7 % 13), i));
  corpus.finish();
  recipe_.data.kind = "indexed";
  recipe_.data.path = recipe_.eval.data = (folder_ / "corpus").string();
  recipe_.optimizer.lr = 0;
  recipe_.loss = {.mtp_steps = 2, .mtp_scale = 0.3, .z = 0.01};
  recipe_.steps = 2;
  recipe_.eval.every = 1;
  recipe_.eval.batches = 1;
  const Run once = train();
  recipe_.eval.batches = 2;
  const Run both = train();
  for (const char* name : {"z_loss", "mtp_loss_1", "mtp_loss_2", "mtp_loss"}) {
    const double first = once.metric(0, name), second = once.metric(1, name);
    EXPECT_GT(first, 0) << name;
    EXPECT_NEAR(Run::metric(once.held_out.at(0).metrics, name), first, 1e-6 * first) << name;
    const double mean = Run::metric(both.held_out.at(0).metrics, name);
    EXPECT_GT(mean, std::min(first, second)) << name;
    EXPECT_LT(mean, std::max(first, second)) << name;
  }
  EXPECT_NEAR(once.metric(0, "mtp_loss"), (once.metric(0, "mtp_loss_1") + once.metric(0, "mtp_loss_2")) / 2, 1e-9);
}

// Rows that are fewer than the batches ask for count once each.
TEST_F(LanguageTest, ASmallHeldOutSetIsReadOnce) {
  io::TokenFileWriter corpus(folder_ / "corpus", 50);
  for (int32_t i = 0; i < 5; ++i) corpus.add(std::vector<int32_t>(8, i));
  corpus.finish();
  recipe_.data.kind = "indexed";
  recipe_.data.path = recipe_.eval.data = (folder_ / "corpus").string();
  recipe_.optimizer.lr = 0;
  recipe_.length = 8;
  recipe_.steps = 1;
  recipe_.eval.every = 1;
  recipe_.batch = 5;
  recipe_.eval.batches = 1;
  const double once = train().held_out.at(0).loss;
  for (const auto& [batch, batches] : {std::pair<int64_t, int64_t>{2, 3}, {2, 40}, {4, 40}, {7, 1}}) {
    recipe_.batch = batch;
    recipe_.eval.batches = batches;
    EXPECT_NEAR(train().held_out.at(0).loss, once, 1e-6 * once) << batch << " " << batches;
  }
}

// Without a step between them: different batches from training, and all their tokens.
TEST_F(LanguageTest, HeldOutBatchesAreNotTrainedAndWhole) {
  recipe_.optimizer.lr = 0;
  recipe_.eval = {.every = 1, .batches = 1};
  const Run plain = train();
  EXPECT_EQ(plain.values.back(), plain.values.front());
  ASSERT_EQ(plain.held_out.size(), 3u);
  for (const StepLog& log : plain.logs) EXPECT_NE(log.loss, plain.held_out[0].loss);
  EXPECT_EQ(plain.held_out[2].loss, plain.held_out[0].loss);
  recipe_.loss.goldfish_k = 2;
  const Run masked = train();
  EXPECT_NE(masked.logs[0].loss, plain.logs[0].loss);
  EXPECT_EQ(masked.held_out[0].loss, plain.held_out[0].loss);
  recipe_.loss.goldfish_k = 0;
  recipe_.dropout = 0.5;
  const Run dropped = train();
  EXPECT_NE(dropped.logs[0].loss, plain.logs[0].loss);
  for (const HeldOutLog& log : dropped.held_out) EXPECT_EQ(log.loss, plain.held_out[0].loss);
  recipe_.dropout = 0;
  recipe_.eval.data = "/nowhere";  // the source is a generator, which has no file
  const Run named = train();
  for (const HeldOutLog& log : named.held_out) EXPECT_EQ(log.loss, plain.held_out[0].loss);
}

// Learned positions end; rows must not be longer.
TEST_F(LanguageTest, RowsBeyondTheLearnedPositionsAreRefused) {
  recipe_.init = support::data("hf/gpt2");
  recipe_.length = 200;
  EXPECT_NE(support::error_of([&] { train(); }).find("[length] the model has no positions"), std::string::npos);
  recipe_.length = 32;
  recipe_.steps = 1;
  EXPECT_EQ(train().logs.size(), 1u);
}

// Adapters of experts and of the head read working copies, whose gradients are folded into A and B: with exact ranks,
// which continue each other's sums, they do so once, and nothing differs from one rank in a bit.
TEST_F(LanguageTest, ExactRanksFoldGradientsOfAdaptersAsOneDoes) {
  write_hybrid();
  recipe_.lora.rank = 2;
  recipe_.lora.targets = {"q_proj", "lm_head"};
  recipe_.lora.target_parameters = {"experts.up_proj"};
  recipe_.parallel.exact = true;
  const Run one = train();
  recipe_.out += "-ranks";
  const std::vector<float> values = train_on_ranks(recipe_, 2).values;
  EXPECT_EQ(values, one.values.back());
  EXPECT_NE(values, one.values.front());
}

}  // namespace
}  // namespace braid::train
