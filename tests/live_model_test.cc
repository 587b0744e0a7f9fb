// A model in training and the engine share one handle: the model can answer between its steps, and answers like the
// saved checkpoint.
#include "train/language.h"

#include <gtest/gtest.h>

#include "engine/scheduler.h"
#include "engine/score.h"
#include "models/adapter_file.h"
#include "models/load.h"
#include "support/data.h"
#include "support/folder.h"
#include "train/trainer.h"

namespace braid::train {
namespace {

namespace fs = std::filesystem;

std::vector<int32_t> answer(const std::shared_ptr<models::Model>& model) {
  engine::Runner runner(model, {.numerics = Numerics::serving(DType::f32), .context = 64, .threads = 2});
  const std::vector<int32_t> prompt = {1, 5, 9, 2, 33};
  engine::Scheduler scheduler(runner);
  return engine::generate(scheduler, {.prompt = prompt, .generate = {.tokens_max = 24, .ignore_eos = true}}).ids;
}

class LanguageTest : public support::FolderTest {
 protected:
  LanguageTest() {
    recipe_.out = (folder_ / "out").string();
    recipe_.init = (fs::path(support::data()) / "hf" / "nemotron-h-latent-mtp").string();
    recipe_.dtype = "f32";
    recipe_.steps = 4;
    recipe_.batch = 2;
    recipe_.length = 16;
    recipe_.data.kind = "markov";
    recipe_.optimizer.lr = 1e-2;
    recipe_.loss.mtp_scale = 0.3;
  }

  Recipe recipe_;
};

class LiveAnswerTest : public LanguageTest, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Dtypes, LiveAnswerTest, testing::Values("f32", "bf16"));

TEST_P(LiveAnswerTest, TheLiveModelAnswersLikeItsCheckpoint) {
  recipe_.dtype = GetParam();
  std::shared_ptr<models::Model> live;
  std::vector<std::vector<int32_t>> answers;
  {
    Arena arena;
    Ctx ctx{.arena = arena, .threads = 2};
    Language language(recipe_, ctx);
    live = language.model();
    answers.push_back(answer(live));
    Trainer trainer(recipe_, language, ctx);
    trainer.train({.step = [&](const StepLog&) { answers.push_back(answer(live)); }});
  }
  ASSERT_EQ(answers.size(), 5u);
  EXPECT_NE(answers.front(), answers.back());
  EXPECT_EQ(answer(live), answers.back());  // the handle keeps the weights, too
  EXPECT_EQ(answer(models::load_model(io::find_model(recipe_.out))), answers.back());
}

// The summed loss of a batch, computed one token at a time.
double loss_of_steps(const std::shared_ptr<models::Model>& model, const data::Batch& batch, DType products) {
  std::vector<engine::ScoreItem> items;
  for (const Seq& s : batch.seqs.seqs) {
    engine::ScoreItem& item = items.emplace_back();
    item.ids.assign(batch.ids.begin() + s.start, batch.ids.begin() + s.start + s.len);
    const int32_t last = batch.targets[static_cast<size_t>(s.start + s.len - 1)];
    if (last != data::kMasked) item.ids.push_back(last);
  }
  engine::Runner runner(
      model,
      {.numerics = Numerics::serving(products, true), .context = 64, .sequences = std::ssize(items), .threads = 2});
  double sum = 0;
  for (const std::vector<float>& found : engine::score(runner, items, engine::ScorePath::step)) {
    double own = 0;
    for (const float p : found) own -= static_cast<double>(p);
    sum += own;
  }
  return sum;
}

// With `exact` the losses of a training pass are those that the engine computes one token at a time, for both the live
// model and the saved one.
TEST_F(LanguageTest, ExactTrainingHasTheLossesOfSteps) {
  recipe_.exact = true;
  for (const char* dtype : {"f32", "bf16"}) {
    recipe_.dtype = dtype;
    recipe_.out = (folder_ / dtype).string();
    Arena arena;
    Ctx ctx{.arena = arena, .threads = 2};
    Language language(recipe_, ctx);
    const data::Batch batch = language.data().batch(0);
    const auto expect_losses = [&](const std::shared_ptr<models::Model>& model, const char* what) {
      const double expected = loss_of_steps(model, batch, numerics_of(recipe_).products);
      const int64_t rows = language.draw(0, false);
      for (const bool backward : {false, true}) {
        Sums sums;
        language.run(ctx, 0, rows, backward, sums);
        EXPECT_EQ(sums["loss"].sum, expected) << dtype << what << (backward ? ", with gradients" : "");
      }
    };
    expect_losses(language.model(), ", at first");
    Trainer trainer(recipe_, language, ctx);
    trainer.train({});
    expect_losses(language.model(), ", trained");
    expect_losses(models::load_model(io::find_model(recipe_.out)), ", saved");
  }
}

TEST_F(LanguageTest, LiveAdaptersAnswerLikeTheSavedOnes) {
  recipe_.loss.mtp_scale = 0;
  recipe_.lora.rank = 2;
  recipe_.lora.alpha = 64;
  recipe_.lora.targets = {"in_proj", "q_proj", "o_proj"};
  Arena arena;
  Ctx ctx{.arena = arena, .threads = 2};
  Language language(recipe_, ctx);
  const std::vector<int32_t> before = answer(language.model());
  Trainer trainer(recipe_, language, ctx);
  trainer.train({});
  const std::vector<int32_t> after = answer(language.model());
  EXPECT_NE(before, after);
  EXPECT_EQ(answer(models::load_adapted(io::find_model(recipe_.init), recipe_.out, DType::f32)), after);
}

}  // namespace
}  // namespace braid::train
