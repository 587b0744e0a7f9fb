// Plans of graphs on grids: bytes beside those that the trainer's transport counts, to the last one, and the order of
// grids beside virtual time.
#include "layout/graph_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "comm/inproc.h"
#include "graph/generate.h"
#include "graph/graph_write.h"
#include "layout/layout_fixture.h"
#include "layout/rank_order.h"
#include "support/error_of.h"
#include "support/folder.h"
#include "train/grid_nodes.h"

namespace braid::layout {
namespace {

class GraphTraffic : public support::FolderTest {
 protected:
  void make(const GraphTask& task) {
    task_ = task;
    recipe_.objective = "graph";
    recipe_.out = (folder_ / "out").string();
    recipe_.dtype = task.bf16 ? "bf16" : "f32";
    recipe_.graph.path = (folder_ / "graph.safetensors").string();
    recipe_.graph.layers = task.layers;
    recipe_.graph.hidden = task.hidden;
    graph::write_graph(
        recipe_.graph.path,
        graph::block_model({.nodes = task.nodes, .classes = task.classes, .features = task.features, .degree = 2}));
  }
  // Bytes that all ranks sent in the passes of a step.
  int64_t sent(const gnn::GridShape& shape) {
    const auto [x, y, z] = shape;
    recipe_.parallel.grid = fmt::format("{},{},{}", x, y, z);
    const auto ranks = static_cast<int>(shape.ranks());
    std::atomic<int64_t> sum = 0;
    comm::run_in_process(ranks, {.per_node = ranks}, [&](comm::Group& world) {
      train::GridNodes nodes(recipe_, world);
      Arena arena;
      Ctx ctx{.arena = arena, .threads = 1};
      nodes.draw(0, false);
      train::Sums sums;
      const comm::Traffic before = world.traffic();
      nodes.run(ctx, 0, 1, true, sums);
      sum += world.traffic().bytes[0] - before.bytes[0];
      EXPECT_EQ(world.traffic().bytes[1], 0);
    });
    return sum;
  }
  void expect_bytes(const gnn::GridShape& shape) {
    double want = 0;
    for (const GraphCall& call : graph_calls(task_, shape))
      want += bytes_sent(call, group_of(shape, call.axis).size) * static_cast<double>(shape.ranks());
    EXPECT_EQ(sent(shape), std::llround(want)) << recipe_.parallel.grid;
    EXPECT_NEAR(want, std::round(want), 1e-3);
  }

  GraphTask task_;
  train::Recipe recipe_;
};

// Activations of a rank are long enough for the algorithms of long vectors; nothing divides evenly.
TEST_F(GraphTraffic, IsThatOfThePlanOnPowersOfTwo) {
  make({.nodes = 700, .features = 97, .classes = 101, .hidden = 99, .layers = 4});
  for (const int64_t ranks : {1, 2, 4, 8}) {
    task_.ranks = ranks;
    for (const gnn::GridShape& shape : graph_shapes(task_)) expect_bytes(shape);
  }
}

TEST_F(GraphTraffic, IsThatOfThePlanOnSixRanksAndInBF16) {
  make({.nodes = 700, .features = 108, .classes = 108, .hidden = 108, .ranks = 6, .bf16 = true});
  for (const gnn::GridShape& shape : graph_shapes(task_)) expect_bytes(shape);
}

TEST_F(GraphTraffic, IsThatOfThePlanOnSixtyFourRanks) {
  make({.nodes = 3100, .features = 193, .classes = 197, .hidden = 195, .ranks = 64});
  for (const gnn::GridShape& shape : {gnn::GridShape{4, 4, 4}, {1, 1, 64}, {2, 8, 4}}) expect_bytes(shape);
}

// Of 129 nodes half of the ranks have 65, whose rows of 128 channels are 33,280 bytes: more than a short vector has.
TEST_F(GraphTraffic, IsThatOfThePlanWhereGroupsDiffer) {
  make({.nodes = 129, .features = 128, .classes = 8, .hidden = 16, .ranks = 8});
  expect_bytes({4, 1, 2});
}

GraphTask published(const char* name, int64_t ranks) {
  for (const PublishedGraph& g : published_graphs()) {
    if (g.name != std::string(name)) continue;
    GraphTask task = g.task;
    task.ranks = ranks;
    return task;
  }
  return {};
}

// The ten grids of eight ranks on two nodes, and those of sixty-four.
TEST(GraphPlan, TheClosedFormOrdersGridsAsVirtualTimeDoes) {
  for (const char* cluster : {"perlmutter", "dgx-h100", "frontier"}) {
    for (const char* name : {"reddit", "ogbn-products"}) {
      for (const int64_t ranks : {8, 64}) {
        const GraphTask task = published(name, ranks);
        const Machine machine = machine_of(cluster, ranks);
        Replay replay(machine);
        std::vector<Pair> pairs;
        for (const GraphCost& c : graph_plans(task, machine))
          pairs.push_back({c.sent, graph_step_replayed(task, c, replay) - (c.step - c.sent)});
        EXPECT_EQ(pairs.size(), ranks == 8 ? 10u : 27u);
        EXPECT_GE(tau_of(pairs), 0.9) << cluster << " " << name << " " << ranks;
        EXPECT_LE(regret_of(pairs), 0.05) << cluster << " " << name << " " << ranks;
      }
    }
  }
}

TEST(GraphPlan, GridsAreAllThatTheNetworkAllows) {
  GraphTask task{.nodes = 100, .edges = 500, .features = 4, .classes = 3, .hidden = 16, .ranks = 8};
  EXPECT_EQ(graph_shapes(task).size(), 7u);  // of the ten, y = 4 and 8 have more ranks than classes
  for (const gnn::GridShape& s : graph_shapes(task)) EXPECT_LE(s.y, 3);
  task.classes = 1;
  task.features = 1;
  for (const gnn::GridShape& s : graph_shapes(task)) EXPECT_EQ(s.y, 1);
  task.hidden = 1;
  EXPECT_NE(support::error_of([&] { (void)graph_plans(task, machine_of("dgx-h100", 8)); }).find("make no grid"),
            std::string::npos);
}

// A cube has a 16th of the entries of each activation where a rank of sixty-four has it, and a 16th of the edges of
// each of three blocks.
TEST(GraphPlan, MemoryIsDivided) {
  const Machine machine = machine_of("perlmutter", 64);
  const GraphMemory one = graph_cost(published("ogbn-products", 1), machine, {}).memory;
  const GraphMemory cube = graph_cost(published("ogbn-products", 64), machine, {4, 4, 4}).memory;
  EXPECT_NEAR(cube.edges / one.edges, 3.0 / 16, 0.02);
  EXPECT_NEAR(cube.activations / one.activations, 1.0 / 16, 0.001);
  EXPECT_NEAR(cube.features / one.features, 1.0 / 64, 1e-6);
  for (const GraphCost& c : graph_plans(published("ogbn-products", 64), machine)) {
    EXPECT_GT(c.memory.sum(), one.sum() / 64);
    EXPECT_LT(c.memory.sum(), one.sum());
    EXPECT_NEAR(c.step, c.aggregate + c.products + c.rest + c.sent, 1e-12);
  }
}

}  // namespace
}  // namespace braid::layout
