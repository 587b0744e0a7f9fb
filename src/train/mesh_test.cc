// What ranks tell one another in a step: its bytes, to the last one, and sums that do not depend on the rank.
#include "train/mesh.h"

#include <gtest/gtest.h>

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
    own.own = mesh.own(masters);
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

TEST(Mesh, BytesOfAStepAreThoseOfTheFormula) {
  for (const int ranks : {2, 4, 8}) {
    for (const int64_t zero : {0, 1}) {
      Recipe recipe;
      recipe.parallel.zero = zero;
      const std::vector<Step> steps = step_on(ranks, recipe, {4096, 12288});
      const int64_t bytes = 16384 * 16 * 4;  // few bytes take an algorithm with fewer messages
      for (const Step& step : steps) EXPECT_EQ(step.sent, 2 * bytes * (ranks - 1) / ranks) << ranks << " zero " << zero;
    }
  }
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

}  // namespace
}  // namespace braid::train
