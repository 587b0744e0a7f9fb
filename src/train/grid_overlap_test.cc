// Steps on grids with parallel.overlap: the bits and the bytes of those without it.
#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <utility>
#include <vector>

#include "io/json.h"
#include "support/error_of.h"
#include "support/models.h"
#include "train/ranks_fixture.h"
#include "train/token_shares.h"

namespace braid::train {
namespace {

// Grids of as many ranks, with y above 1.
std::vector<std::string> divided_streams(int64_t ranks) {
  std::vector<std::string> grids;
  for (int64_t x = 1; x <= ranks; ++x) {
    for (int64_t y = 2; y <= ranks; ++y) {
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
    nlohmann::json config = models::hybrid();
    config["mamba_num_heads"] = 8, config["n_groups"] = 8;
    config["num_attention_heads"] = 8, config["num_key_value_heads"] = 8;
    config["intermediate_size"] = 48;
    recipe_.config = io::Json::parse(config.dump(), "config");
    recipe_.out = (folder_ / "out").string();
    recipe_.dtype = "f32";
    recipe_.steps = 2;
    recipe_.batch = 8;
    recipe_.length = 12;
    recipe_.data.kind = "markov";
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
  ASSERT_EQ(divided_streams(4).size(), 4U);
  ASSERT_EQ(divided_streams(8).size(), 10U);
  for (const int ranks : {4, 8}) {
    for (const std::string& grid : divided_streams(ranks)) expect_same(grid, ranks);
  }
}

TEST_F(GridOverlap, WhateverIsRecomputed) {
  for (const char* dtype : {"f32", "bf16"}) {
    for (const char* kind : {"none", "selective", "full"}) {
      recipe_.dtype = dtype;
      recipe_.recompute = kind;
      for (const char* grid : {"1,2,2,1", "2,2,1,1"}) expect_same(grid, 4);
    }
  }
}

// Of a grid that does not divide the residual stream nothing could travel.
TEST_F(GridOverlap, IsOfYAlone) {
  recipe_.parallel.overlap = true;
  for (const auto& [grid, overlaps] : {std::pair{"2,2,1,1", true}, {"1,4,1,1", true}, {"2,1,2,1", false}}) {
    recipe_.parallel.grid = grid;
    const std::string error = support::error_of([&] { check_mesh(recipe_, 4); });
    EXPECT_EQ(error.find("cannot be used with parallel.grid where y is 1") == std::string::npos, overlaps) << error;
    if (!overlaps) continue;
    comm::run_in_process(4, {.per_node = 4}, [&](comm::Group& world) {
      Mesh mesh(recipe_, world);
      Arena arena;
      Ctx ctx{.arena = arena, .threads = 1};
      const SeqMap seqs = SeqMap::one(1);
      nn::StateView state;
      nn::Run pass{.ctx = ctx, .seqs = seqs, .state = state};
      TokenShares().put(pass, &mesh);
      EXPECT_TRUE(pass.hidden && pass.overlap);
    });
  }
}

}  // namespace
}  // namespace braid::train
