// Layouts: which are legal, what they send and need, and where published ones rank.
#include <gtest/gtest.h>

#include <array>
#include <set>

#include "layout/layout_fixture.h"
#include "models/cut.h"
#include "models/inventory.h"
#include "support/error_of.h"
#include "sys/error.h"
#include "train/mesh.h"
#include "train/token_shares.h"

namespace braid::layout {
namespace {

std::string key_of(const train::ParallelRecipe& p) {
  return fmt::format("{} {} {} {} {} {} {} {} {}", p.tp, p.sp, p.cp, p.pp, p.virtual_stages, p.ep, p.etp, p.zero,
                     p.grid);
}

// Every combination of small words, whether it divides or not, against the trainer's own checks of a whole recipe.
TEST(Layout, LegalIsWhatTheTrainerTakes) {
  const Model model = model_of("hybrid-8.5m", 64);
  const Task task{.ranks = 8, .batch = 8, .length = 64};
  std::set<std::string> want;
  train::Recipe recipe;
  recipe.config = models::find_preset("hybrid-8.5m");
  recipe.out = "out";
  recipe.batch = task.batch;
  const auto legal = [&](const train::ParallelRecipe& p) {
    recipe.parallel = p;
    recipe.accumulate = p.virtual_stages > 1 ? p.pp : 1;
    return support::error_of([&] {
             train::check_mesh(recipe, 8);
             train::check_cut(recipe);
             (void)train::stage_of(recipe, model.config(), 64, 0);
             if (p.cp > 1) (void)train::context_modes(p, models::cut_config(model.config(), {.ranks = p.tp}));
           })
        .empty();
  };
  train::ParallelRecipe p;
  for (p.tp = 1; p.tp <= 9; ++p.tp)
    for (p.cp = 1; p.tp * p.cp <= 9; ++p.cp)
      for (p.pp = 1; p.tp * p.cp * p.pp <= 9; ++p.pp)
        for (p.ep = 1; p.pp * p.ep <= 9; ++p.ep)
          for (p.etp = 1; p.pp * p.ep * p.etp <= 9; ++p.etp)
            for (const bool sp : {false, true})
              for (const int64_t chunks : {1, 2, 3, 4, 6, 8, 12}) {
                p.sp = sp, p.virtual_stages = chunks, p.zero = 0;
                // The same as etp = 1.
                if (p.ep == 1 && p.etp == p.tp && p.etp > 1) continue;
                if (!legal(p)) continue;
                for (p.zero = 0; p.zero <= 3; ++p.zero) {
                  // Nobody to share with: the same as zero = 0.
                  const bool alone = 8 / p.pp == p.tp && (!p.divides_experts() || 8 / p.pp == p.ep * p.etp);
                  if (p.zero == 0 || (!alone && legal(p))) want.insert(key_of(p));
                }
              }
  std::set<std::string> got;
  for (const train::ParallelRecipe& found : layouts(model, task, {.grid = false}))
    EXPECT_TRUE(got.insert(key_of(found)).second) << key_of(found);
  EXPECT_GT(got.size(), 100u);
  EXPECT_EQ(got, want);
}

// docs/training.md, Many ranks: times (P - 1) / P, of n bytes of weights, n_l of them in layers, in A parts.
TEST(Layout, TheStateSendsTheBytesOfTheFormula) {
  const Model model = model_of("llama-3.1-8b", 4096);
  const Machine machine = machine_of("dgx-h100", 8);
  const Task task{.ranks = 8, .batch = 32};
  double n = 0, layers = 0;
  for (const models::TensorSpec& t : models::inventory(model.config())) {
    n += 4 * static_cast<double>(t.shape.count());
    layers += t.layer < 0 ? 0 : 4 * static_cast<double>(t.shape.count());
  }
  for (const int64_t parts : {1, 2, 4}) {
    const double a = static_cast<double>(parts);
    const double want[] = {2 * n, 2 * n, 2 * n + (a - 1) * layers, 2 * n + (3 * a - 2) * layers};
    for (const int64_t zero : {0, 1, 2, 3}) {
      const Layout layout{.parallel = {.zero = zero}, .parts = parts};
      const Cost cost = cost_of(model, machine, task, work_of(model, machine, task, layout));
      EXPECT_NEAR(cost.bytes[static_cast<size_t>(Axis::batch)] / (want[zero] * 7 / 8), 1, 1e-12) << zero << parts;
    }
  }
}

// Moments leave the device, and come and go while the optimiser runs; of activations two layers stay, and a layer takes
// no less than they need each way.
TEST(Layout, WhatTheHostKeepsLeavesMemoryAndTakesItsLink) {
  const Model model = model_of("llama-3.1-8b", 4096);
  Machine machine = machine_of("dgx-h100", 8);
  const Layout layout{.parallel = {.zero = 1}, .parts = 2};
  Task task{.ranks = 8, .batch = 16, .length = 4096};
  const auto cost = [&] { return cost_of(model, machine, task, work_of(model, machine, task, layout)); };
  const Cost none = cost();
  EXPECT_EQ(none.host_bytes, 0);
  double n = 0;
  for (const models::TensorSpec& t : models::inventory(model.config())) n += static_cast<double>(t.shape.count());
  task.offload_optimizer = true;
  const Cost state = cost();
  EXPECT_NEAR((none.memory.sum() - state.memory.sum()) / n, 1, 1e-9);  // 8 bytes, of which a rank had an eighth
  EXPECT_NEAR(state.host_bytes / n, 1, 1e-9);
  EXPECT_NEAR((state.step - none.step) / (n / 64e9 - 30 * n / 8 / 3350e9), 1, 1e-6);
  task = {.ranks = 8, .batch = 16, .length = 4096, .offload_activations = true};
  const Cost activations = cost();
  EXPECT_NEAR(none.memory.activations / activations.memory.activations, 32 / 2.0, 0.5);
  EXPECT_NEAR(activations.host_bytes / (2 * none.memory.activations), 1, 1e-9);
  EXPECT_GT(activations.step, none.step);
  machine.device.host_gb_per_s = 1000;
  EXPECT_EQ(cost().step, none.step);
  machine.device.host_gb_per_s = 1;
  EXPECT_NEAR(cost().compute / (2 * 2 * none.memory.activations / 1e9), 1, 0.05);
}

// On a grid sums of input gradients over x and y are waited for as far as gradients of weights do not hide them.
TEST(Layout, GradientsOfWeightsHideSumsOfInputGradients) {
  const Model model = model_of("llama-3.1-8b", 4096);
  const Layout layout{.parallel = {.grid = "2,4,1,1"}, .parts = 4};
  const auto costs = [&](double tflops, double gb_per_s) {
    Machine machine = machine_of("dgx-h100", 8);
    machine.device.tflops = tflops, machine.device.gb_per_s = gb_per_s;
    std::array<Cost, 2> both;
    for (const bool overlap : {false, true}) {
      const Task task{.ranks = 8, .batch = 16, .length = 4096, .overlap = overlap};
      both[overlap ? 1 : 0] = cost_of(model, machine, task, work_of(model, machine, task, layout));
    }
    EXPECT_EQ(both[0].hidden, 0);
    EXPECT_EQ(both[0].bytes, both[1].bytes);
    EXPECT_NEAR(both[0].waits - both[1].waits, both[1].hidden, 1e-9 * both[0].waits);
    return both;
  };
  // In each of 4 parts and 32 layers two blocks of 16384 tokens: a sum of 4096 / 4 channels over x for what each reads,
  // and of 4096 / 2 and 14336 / 2 over y for what its output's product reads.
  const auto sum = [](const comm::Groups& group, double channels) {
    return seconds_of({comm::Op::all_reduce, Axis::tensor, 4 * 16384 * channels}, group,
                      machine_of("dgx-h100", 8).links);
  };
  const comm::Groups x{.size = 2, .stride = 1}, y{.size = 4, .stride = 2};
  const double all = 4 * 32 * (2 * sum(x, 1024) + sum(y, 2048) + sum(y, 7168));
  EXPECT_NEAR(costs(1, 1)[1].hidden / all, 1, 1e-9);
  EXPECT_LT(costs(1e9, 1e9)[1].hidden / all, 1e-3);
}

}  // namespace
}  // namespace braid::layout
