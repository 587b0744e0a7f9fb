// A recipe over a real model of a few layers: what language modelling does beyond the loop of trainer_test.cc.
#include "train/language.h"

#include <algorithm>

#include "support/models.h"
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

  struct Change {
    models::MasterTensor tensor;
    std::vector<float> before{}, after{};
    int64_t changed(int64_t row) const {
      const int64_t cols = tensor.shape[1];
      int64_t n = 0;
      for (auto i = static_cast<size_t>(row * cols); i < static_cast<size_t>((row + 1) * cols); ++i)
        n += before[i] != after[i] ? 1 : 0;
      return n;
    }
  };
  // The first tensor that is trained, before and after the steps of the recipe.
  Change train() {
    Arena arena;
    Ctx ctx{.arena = arena, .threads = 1};
    Language language(recipe_, ctx);
    models::Masters& masters = language.masters();
    Change change{.tensor = masters.tensors()[0]};
    const auto values = [&] {
      const auto all = masters.values().subspan(static_cast<size_t>(change.tensor.place));
      return std::vector<float>(all.begin(), all.begin() + change.tensor.count());
    };
    change.before = values();
    Trainer trainer(recipe_, language, ctx);
    trainer.train({});
    change.after = values();
    return change;
  }

  Recipe recipe_;
};

TEST_F(LanguageTest, LookingUpPaddingTrainsNothing) {
  const Change embedding = train();
  ASSERT_EQ(embedding.tensor.shape, (Shape{50, 32}));
  int64_t trained = 0;
  for (int64_t row = 0; row < 50; ++row) trained += embedding.changed(row) > 0 ? 1 : 0;
  EXPECT_EQ(embedding.changed(kPadding), 0);
  EXPECT_GT(trained, 25);
}

// The rows of A are as wide as those of the embedding: row kPadding of the first must train all the same.
TEST_F(LanguageTest, PaddingIsNoRowOfAnAdapter) {
  recipe_.lora.rank = 2;
  recipe_.lora.targets = {"q_proj"};
  const Change a = train();
  ASSERT_EQ(a.tensor.shape, (Shape{2, 32}));
  EXPECT_EQ(a.changed(0), 32);
  EXPECT_EQ(a.changed(kPadding), 32);
}

}  // namespace
}  // namespace braid::train
