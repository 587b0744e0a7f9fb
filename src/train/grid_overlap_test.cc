// Steps on grids with parallel.overlap: the bits and the bytes of those without it.
#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <vector>

#include "io/json.h"
#include "support/models.h"
#include "train/ranks_fixture.h"

namespace braid::train {
namespace {

std::vector<std::string> language_grids(int64_t ranks) {
  std::vector<std::string> grids;
  for (int64_t x = 1; x <= ranks; ++x) {
    for (int64_t y = 1; y <= ranks; ++y) {
      for (int64_t z = 1; z <= ranks; ++z) {
        if (ranks % (x * y * z) == 0) grids.push_back(fmt::format("{},{},{},{}", x, y, z, ranks / (x * y * z)));
      }
    }
  }
  return grids;
}

class GridOverlap : public models::FolderTest {
 protected:
  void SetUp() override {
    models::FolderTest::SetUp();
    make(8);
    recipe_.out = (folder_ / "out").string();
    recipe_.dtype = "f32";
    recipe_.steps = 2;
    recipe_.batch = 8;
    recipe_.length = 12;
    recipe_.data.kind = "markov";
  }

  // `shared`: keys and values, and groups of B and C, that 8 heads read.
  void make(int64_t shared) {
    nlohmann::json config = models::hybrid();
    config["mamba_num_heads"] = 8, config["n_groups"] = shared;
    config["num_attention_heads"] = 8, config["num_key_value_heads"] = shared;
    config["intermediate_size"] = 48;
    recipe_.config = io::Json::parse(config.dump(), "config");
  }

  RanksRun run(const std::string& grid, int ranks, bool overlap) {
    Recipe recipe = recipe_;
    recipe.parallel.grid = grid;
    recipe.parallel.overlap = overlap;
    std::filesystem::remove_all(recipe.out);
    return train_on_ranks(recipe, ranks);
  }
  void expect_same(const std::string& grid, int ranks) {
    const RanksRun apart = run(grid, ranks, false), beside = run(grid, ranks, true);
    const std::string name = fmt::format("{} {} {}", grid, recipe_.dtype, recipe_.recompute);
    ASSERT_EQ(apart.logs.size(), 2U) << name;
    ASSERT_EQ(beside.logs.size(), 2U) << name;
    for (size_t i = 0; i < apart.logs.size(); ++i) {
      EXPECT_EQ(apart.logs[i].loss, beside.logs[i].loss) << name;
      EXPECT_EQ(apart.logs[i].grad_norm, beside.logs[i].grad_norm) << name;
    }
    ASSERT_EQ(apart.values.size(), beside.values.size()) << name;
    for (size_t i = 0; i < apart.values.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(apart.values[i]), std::bit_cast<uint32_t>(beside.values[i]))
          << name << ": " << i;
    }
    EXPECT_EQ(apart.sent, beside.sent) << name;
    EXPECT_GT(apart.sent[0], 0) << name;
  }

  Recipe recipe_;
};

TEST_F(GridOverlap, HasTheBitsAndTheBytesOfSumsInTurn) {
  ASSERT_EQ(language_grids(4).size(), 10U);
  ASSERT_EQ(language_grids(8).size(), 20U);
  for (const int ranks : {4, 8}) {
    for (const std::string& grid : language_grids(ranks)) expect_same(grid, ranks);
  }
}

TEST_F(GridOverlap, WhateverIsRecomputed) {
  for (const char* dtype : {"f32", "bf16"}) {
    for (const char* kind : {"none", "selective", "full"}) {
      recipe_.dtype = dtype;
      recipe_.recompute = kind;
      for (const char* grid : {"1,2,2,1", "2,2,1,1", "2,1,2,1", "1,1,2,2"}) expect_same(grid, 4);
    }
  }
}

// Whose gradients ranks of x sum before those of z and d do.
TEST_F(GridOverlap, WithHeadsThatRanksShare) {
  make(2);
  for (const char* grid : {"4,1,2,1", "4,1,1,2", "4,2,1,1"}) expect_same(grid, 8);
}

// Parts of a batch add to the gradients before these are summed; what is written, and the mean of the weights, are
// those of whole weights.
TEST_F(GridOverlap, WithPartsOfABatchAndAMean) {
  recipe_.accumulate = 2;
  recipe_.ema_decay = 0.5;
  recipe_.checkpoint.every = 1;
  for (const char* grid : {"1,1,4,1", "2,1,2,1", "1,2,1,2", "1,1,2,2"}) expect_same(grid, 4);
}

}  // namespace
}  // namespace braid::train
