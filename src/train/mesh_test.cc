// What ranks tell one another in a step: its bytes, to the last one, and sums that do not depend on the rank.
#include "train/mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "comm/inproc.h"
#include "support/error_of.h"

namespace braid::train {
namespace {

// Tensors of one matrix each.
std::vector<models::MasterTensor> tensors(std::initializer_list<int64_t> rows) {
  std::vector<models::MasterTensor> list;
  for (const int64_t n : rows)
    list.push_back({.name = "t" + std::to_string(list.size()), .role = ParamRole::up, .shape = {n, 16}});
  return list;
}

struct Step {
  int64_t sent = 0;
  std::vector<float> grads{}, values{};
  Range own{};
};

// Gradient i of rank r is r + i; the optimiser writes i.
std::vector<Step> step_on(int ranks, const Recipe& recipe, std::initializer_list<int64_t> rows) {
  std::vector<Step> steps(static_cast<size_t>(ranks));
  comm::run_in_process(ranks, {.per_node = ranks}, [&](comm::Group& world) {
    Mesh mesh(recipe, world);
    models::MasterWeights masters(DType::f32);
    const std::vector<Param> params = masters.own(tensors(rows));
    for (size_t i = 0; i < masters.grads().size(); ++i)
      masters.grads()[i] = static_cast<float>(i) + static_cast<float>(world.rank());
    Step& own = steps[static_cast<size_t>(world.rank())];
    own.own = mesh.own(masters)[0];
    Sums none;
    const int64_t before = mesh.bytes_sent();
    mesh.end_gradients(masters, none, 1);
    for (int64_t i = own.own.begin; i < own.own.begin + own.own.count; ++i)
      masters.values()[static_cast<size_t>(i)] = static_cast<float>(i);
    mesh.gather_weights(masters, 1);
    own.sent = mesh.bytes_sent() - before;
    own.grads.assign(masters.grads().begin(), masters.grads().end());
    own.values.assign(masters.values().begin(), masters.values().end());
  });
  return steps;
}

constexpr int64_t kNames = 8;  // bytes by which a rank tells each other one which sums it has

TEST(Mesh, BytesOfAStepAreThoseOfTheFormula) {
  for (const int ranks : {2, 4, 8}) {
    for (const int64_t zero : {0, 1}) {
      Recipe recipe;
      recipe.parallel.zero = zero;
      const std::vector<Step> steps = step_on(ranks, recipe, {4096, 12288});
      const int64_t bytes = 16384 * 16 * 4;  // few bytes take an algorithm with fewer messages
      for (const Step& step : steps)
        EXPECT_EQ(step.sent, 2 * bytes * (ranks - 1) / ranks + kNames * (ranks - 1)) << ranks << " zero " << zero;
    }
  }
}

// AxoNN's terms (arXiv 2502.08145, section 5) for n elements: the gradients' reduce-scatter and the weights' all-gather
// over z, and the sum of what remains over d.
TEST(Mesh, BytesOfAGridAreThoseOfTheFormula) {
  constexpr int64_t kBytes = 16384 * 16 * 4;
  for (const char* grid : {"1,1,2,1", "1,1,4,2", "1,1,2,4", "2,1,2,2", "1,2,1,4", "2,2,2,1"}) {
    Recipe recipe;
    recipe.parallel.grid = grid;
    const Grid g = recipe.parallel.axes();
    const int64_t part = kBytes / g.z;
    for (const Step& step : step_on(static_cast<int>(g.model() * g.z * g.d), recipe, {4096, 12288}))
      EXPECT_EQ(step.sent, 2 * (g.z - 1) * part + 2 * (g.d - 1) * part / g.d + kNames * (g.z * g.d - 1)) << grid;
  }
}

// In place of a wait without end, or of sums that are mixed up.
TEST(MeshDeathTest, RanksHaveTheSameSums) {
  const auto add_up = [](bool other) {
    comm::run_in_process(2, {.per_node = 2}, [&](comm::Group& world) {
      Mesh mesh({}, world);
      Sums sums;
      sums.add("loss", 1, 1);
      if (other || world.rank() == 0) sums.add(other && world.rank() == 0 ? "kl" : "ce", 1, 1);
      mesh.add_up(sums);
    });
  };
  EXPECT_EXIT(add_up(false), testing::ExitedWithCode(70), "has the sums loss");
  EXPECT_EXIT(add_up(true), testing::ExitedWithCode(70), "has the sums loss");
}

TEST(Mesh, GridsThatCannotBe) {
  const auto error = [](const char* word, auto&& change) {
    Recipe recipe;
    recipe.parallel.grid = word;
    change(recipe);
    return support::error_of([&] { check_mesh(recipe, 8); });
  };
  const auto none = [](Recipe&) {};
  for (const char* word :
       {"2,2", "2,2,2,1,", "2,2,2,0", "2, 2,2,1", "a,1,1,8", "-2,2,2,1", "8,1,1,999999999999999999999"})
    EXPECT_NE(error(word, none).find("is not a grid"), std::string::npos) << word;
  EXPECT_NE(error("2,2,2", none).find("has the three axes of a graph"), std::string::npos);
  EXPECT_NE(error("2,2,1,1", none).find("does not make the number of ranks; got 2 x 2 x 1 x 1 = 4; expected 8"),
            std::string::npos);
  EXPECT_NE(error("2,2,2,1", [](Recipe& r) { r.parallel.zero = 1; }).find("cannot be used with tp"), std::string::npos);
  EXPECT_NE(error("2,2,2,1", [](Recipe& r) { r.loss.z = 0.1; }).find("loss.z"), std::string::npos);
  EXPECT_NE(error("1,1,4,2", [](Recipe& r) { r.batch = 7; }).find("too few sequences"), std::string::npos);
}

TEST(Mesh, OwnGradientsAreSummedAndAllWeightsArrive) {
  for (const char* kind : {"adamw", "muon"}) {
    for (const int ranks : {2, 3, 5}) {
      Recipe recipe;
      recipe.parallel.zero = 1;
      recipe.optimizer.kind = kind;
      int64_t covered = 0;
      for (const Step& step : step_on(ranks, recipe, {3, 17, 2, 40})) {
        EXPECT_EQ(step.own.begin, covered);
        covered += step.own.count;
        for (int64_t i = step.own.begin; i < covered; ++i) {
          const double sum = static_cast<double>(ranks * i) + ranks * (ranks - 1) / 2.0;
          ASSERT_EQ(static_cast<double>(step.grads[static_cast<size_t>(i)]), sum) << i;
        }
        for (size_t i = 0; i < step.values.size(); ++i) ASSERT_EQ(step.values[i], static_cast<float>(i));
        // Muon reads matrices whole: tensors begin at 0, 64, 352 and 384.
        const bool whole = step.own.begin == 0 || step.own.begin == 64 || step.own.begin == 336 ||
                           step.own.begin == 352 || step.own.begin == 384 || step.own.count == 0;
        if (recipe.optimizer.kind == "muon") {
          EXPECT_TRUE(whole) << step.own.begin;
        }
      }
      EXPECT_EQ(covered, 1024);
    }
  }
}

// Four ranks in two groups that have the same two experts, one each: a dense tensor, then the expert's.
std::vector<models::MasterTensor> with_expert(int expert) {
  std::vector<models::MasterTensor> list = tensors({4096, 8192});
  for (size_t i = 0; i < list.size(); ++i) list[i].number = static_cast<int64_t>(i) * (1 + expert);
  list[1].of_expert = true;
  return list;
}

struct ExpertStep {
  std::vector<float> grads{}, whole{};
  int64_t sent = 0;
  double squares = 0;
};

// Gradients are the rank's number plus one; the values of a tensor are its number.
std::vector<ExpertStep> expert_step(int64_t zero, bool assemble) {
  std::vector<ExpertStep> steps(4);
  comm::run_in_process(4, {.per_node = 4}, [&](comm::Group& world) {
    Recipe recipe;
    recipe.parallel.ep = 2;
    recipe.parallel.zero = zero;
    Mesh mesh(recipe, world);
    models::MasterWeights masters(DType::f32), whole(DType::f32);
    masters.own(with_expert(world.rank() % 2));
    whole.own(tensors({4096, 8192, 8192}));
    std::fill(masters.grads().begin(), masters.grads().end(), static_cast<float>(world.rank() + 1));
    ExpertStep& own = steps[static_cast<size_t>(world.rank())];
    Sums none;
    const int64_t before = mesh.bytes_sent();
    mesh.end_gradients(masters, none, 1);
    for (const Range& r : mesh.own(masters)) {
      for (int64_t i = r.begin; i < r.begin + r.count; ++i) {
        const auto number = i < masters.experts_begin() ? 0 : masters.tensors()[1].number;
        masters.values()[static_cast<size_t>(i)] = static_cast<float>(number);
      }
    }
    mesh.gather_weights(masters, 1);
    own.sent = mesh.bytes_sent() - before;
    own.grads.assign(masters.grads().begin(), masters.grads().end());
    const std::vector<Range> mine = mesh.own(masters);
    own.squares = mesh.squared_norm(masters, [&](const Range& of) {
      double sum = 0;
      for (const Range& r : mine) {
        const int64_t begin = std::max(r.begin, of.begin), end = std::min(r.begin + r.count, of.begin + of.count);
        for (int64_t i = begin; i < end; ++i)
          sum += std::pow(static_cast<double>(own.grads[static_cast<size_t>(i)]), 2);
      }
      return sum;
    });
    if (assemble) own.whole = mesh.assemble(masters, whole, masters.values(), false);
  });
  return steps;
}

TEST(Mesh, ExpertsAreSummedOverTheRanksThatHaveThem) {
  constexpr int64_t kDense = 4096 * 16, kExpert = 8192 * 16;
  for (const int64_t zero : {0, 1}) {
    const std::vector<ExpertStep> steps = expert_step(zero, true);
    for (size_t rank = 0; rank < steps.size(); ++rank) {
      const ExpertStep& step = steps[rank];
      const float expert = rank % 2 == 0 ? 1 + 3 : 2 + 4;
      if (zero == 0) {
        EXPECT_EQ(step.grads.front(), 10.0f);
        EXPECT_EQ(step.grads[kDense - 1], 10.0f);
        EXPECT_EQ(step.grads[kDense], expert);
        EXPECT_EQ(step.grads.back(), expert);
      }
      EXPECT_EQ(step.squares, 100.0 * kDense + (16.0 + 36.0) * kExpert);
      // 2 n (P - 1) / P of each, where P ranks have the same.
      EXPECT_EQ(step.sent, 4 * (2 * kDense * 3 / 4 + 2 * kExpert / 2) + kNames * 3) << "zero " << zero;
    }
    const std::vector<float>& whole = steps[0].whole;
    ASSERT_EQ(std::ssize(whole), kDense + 2 * kExpert);
    for (int64_t i = 0; i < std::ssize(whole); ++i) {
      const float number = i < kDense ? 0 : i < kDense + kExpert ? 1 : 2;
      ASSERT_EQ(whole[static_cast<size_t>(i)], number) << i;
    }
    EXPECT_TRUE(steps[1].whole.empty());
  }
}

}  // namespace
}  // namespace braid::train
