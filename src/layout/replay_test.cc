// The closed form beside virtual time, over all layouts of 64 ranks: how well it orders them, and what its first choice
// loses.
#include "layout/replay.h"

#include <gtest/gtest.h>

#include "layout/layout_fixture.h"
#include "layout/rank_order.h"

namespace braid::layout {
namespace {

struct Outcome {
  size_t layouts = 0;
  double tau = 0, regret = 0;
};

// Of every `step`-th layout.
Outcome compare(const char* preset, const char* cluster, const Task& task, size_t step) {
  const Space space;
  const Model model = model_of(preset, task.length);
  const Machine machine = machine_of(cluster, task.ranks);
  Replay replay(machine);
  std::vector<Pair> pairs;
  const std::vector<train::ParallelRecipe> all = layouts(model, task, space);
  for (size_t i = 0; i < all.size(); i += step) {
    const Choice choice = best_of(model, machine, task, space, all[i]);
    pairs.push_back({choice.cost.step, replay.step_seconds(task, work_of(model, machine, task, choice.layout))});
  }
  return {pairs.size(), tau_of(pairs), regret_of(pairs)};
}

void expect_order(const Outcome& out, size_t layouts_least) {
  EXPECT_GT(out.layouts, layouts_least);
  EXPECT_GE(out.tau, 0.9);
  EXPECT_LE(out.regret, 0.05);
  ::testing::Test::RecordProperty("tau", std::to_string(out.tau));
  ::testing::Test::RecordProperty("regret", std::to_string(out.regret));
}

TEST(Replay, TheClosedFormOrdersAllLayoutsOfSixtyFourRanks) {
  expect_order(compare("hybrid-1b", "dgx-h100", {.ranks = 64, .batch = 256, .length = 4096}, 1), 20000);
}

TEST(Replay, WithoutOverlapToo) {
  expect_order(compare("hybrid-1b", "perlmutter", {.ranks = 64, .batch = 256, .length = 4096, .overlap = false}, 7),
               3000);
}

// Calls of groups: one over the whole cluster is what comm simulates, and cards that groups share take turns.
TEST(Replay, CallsAreThoseOfTheSimulation) {
  const Machine machine = machine_of("frontier", 64);
  Replay replay(machine);
  for (const comm::Op op :
       {comm::Op::all_reduce, comm::Op::all_gather, comm::Op::reduce_scatter, comm::Op::all_to_all}) {
    const comm::Request request{.op = op, .count = 1 << 22, .uniform = op != comm::Op::all_to_all};
    const double whole = comm::simulate(machine.links, request).us * 1e-6;
    EXPECT_NEAR(replay.seconds({op, Axis::batch, 1 << 24}, {64, 1}) / whole, 1, 1e-9);
    // Eight groups over eight nodes, two of them on each card, against the same with a card each.
    Machine wide = machine;
    wide.links.nics = 8;
    const double shared = replay.seconds({op, Axis::batch, 1 << 26}, {8, 8}),
                 alone = Replay(wide).seconds({op, Axis::batch, 1 << 26}, {8, 8});
    EXPECT_GT(shared, 1.7 * alone) << static_cast<int>(op);
    EXPECT_LT(shared, 2.1 * alone) << static_cast<int>(op);
  }
}

// On both sides of every size at which comm changes the algorithm, the closed form changes with it. Where ranks of two
// nodes share cards it takes up to a half more for an all-to-all, because only some of them do so at once.
TEST(Replay, TheClosedFormFollowsTheChoiceOfAlgorithms) {
  for (const char* cluster : {"dgx-h100", "perlmutter", "frontier"}) {
    const Machine machine = machine_of(cluster, 64);
    for (const comm::Groups& group : {comm::Groups{4, 1}, {16, 1}, {64, 1}, {8, 8}}) {
      for (const comm::Op op :
           {comm::Op::all_reduce, comm::Op::all_gather, comm::Op::reduce_scatter, comm::Op::all_to_all}) {
        for (const int64_t edge : {4 << 10, 16 << 10, 32 << 10, 80 << 10, 128 << 10, 512 << 10, 1 << 20}) {
          for (const int64_t size : {edge - 256, edge + 256}) {
            const int64_t bytes = op == comm::Op::all_to_all ? size * group.size : size;  // of a pair of ranks
            const auto whole = static_cast<double>(bytes);
            const double simulated = comm::simulate(machine.links, request_of(op, whole, group.size), group).us * 1e-6;
            const double ratio = seconds_of({op, Axis::batch, whole}, group, machine.links) / simulated;
            EXPECT_GT(ratio, 0.5) << static_cast<int>(op) << " " << cluster << " " << group.size << " " << size;
            EXPECT_LT(ratio, 2) << static_cast<int>(op) << " " << cluster << " " << group.size << " " << size;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace braid::layout
