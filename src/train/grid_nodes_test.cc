// Graphs on a grid of ranks: losses, weights and gradients of every grid beside those of one rank and of a dense
// network in FP64; bytes by formula; blocks that a permutation evens out; checkpoints that other grids resume.
#include "train/grid_nodes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "comm/inproc.h"
#include "graph/generate.h"
#include "graph/graph_write.h"
#include "support/error_of.h"
#include "support/folder.h"
#include "train/mesh.h"
#include "train/trainer.h"

namespace braid::train {
namespace {

namespace fs = std::filesystem;

struct GridRun {
  std::vector<double> losses{}, norms{}, accuracies{};
  std::vector<float> weights{};
};

class GridNodesTest : public support::FolderTest {
 protected:
  GridNodesTest() {
    recipe_.objective = "graph";
    recipe_.out = (folder_ / "out").string();
    recipe_.dtype = "f32";
    recipe_.steps = 3;
    recipe_.optimizer = {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .weight_decay = 0, .clip = 1};
    recipe_.schedule.kind = "constant";
    recipe_.graph.model = "gcn";
    recipe_.graph.layers = 3;
    recipe_.graph.hidden = 13;
    recipe_.graph.path = (folder_ / "graph.safetensors").string();
    // Widths and nodes that nothing divides.
    graph::write_graph(recipe_.graph.path,
                       graph::block_model({.nodes = 203, .classes = 11, .features = 17, .degree = 6, .seed = 4}));
  }

  static void record(Recipe& recipe, Objective& objective, Mesh* mesh, GridRun& run, const std::string& from) {
    Arena arena;
    Ctx ctx{.arena = arena, .threads = 1};
    Trainer trainer(recipe, objective, ctx, mesh);
    if (!from.empty()) trainer.resume(from);
    trainer.train({.step = [&](const StepLog& log) {
      run.losses.push_back(log.loss);
      run.norms.push_back(log.grad_norm);
      run.accuracies.push_back(log.metrics.at(0).second);
    }});
    const std::span<const float> values = objective.masters().values();
    if (!mesh) run.weights.assign(values.begin(), values.end());
    if (mesh) run.weights = mesh->assemble(objective.masters(), objective.whole(), values, false);
  }

  GridRun serial(const std::string& from = {}) {
    fs::remove_all(fs::path(recipe_.out) / "log");
    recipe_.parallel.grid.clear();
    GridRun run;
    Nodes nodes(recipe_);
    record(recipe_, nodes, nullptr, run, from);
    return run;
  }
  GridRun on(const std::string& grid, const std::string& from = {}) {
    recipe_.parallel.grid = grid;
    const auto ranks = static_cast<int>(recipe_.parallel.axes().model());
    GridRun first;
    comm::run_in_process(ranks, {.per_node = ranks}, [&](comm::Group& world) {
      Recipe own = recipe_;
      Mesh mesh(own, world);
      GridNodes nodes(own, world);
      GridRun run;
      record(own, nodes, &mesh, run, from);
      if (world.rank() == 0) first = run;
    });
    return first;
  }
  void expect_close(const GridRun& got, const GridRun& want, const std::string& what) {
    ASSERT_EQ(got.losses.size(), want.losses.size()) << what;
    for (size_t i = 0; i < want.losses.size(); ++i) {
      EXPECT_NEAR(got.losses[i], want.losses[i], 1e-5 * want.losses[i]) << what << " step " << i + 1;
      EXPECT_NEAR(got.norms[i], want.norms[i], 1e-5 * want.norms[i]) << what << " step " << i + 1;
      EXPECT_DOUBLE_EQ(got.accuracies[i], want.accuracies[i]) << what << " step " << i + 1;
    }
  }

  Recipe recipe_;
};

// All grids of so many ranks.
std::vector<std::string> grids_of(int64_t ranks) {
  std::vector<std::string> grids;
  for (int64_t x = 1; x <= ranks; ++x) {
    for (int64_t y = 1; y <= ranks; ++y) {
      if (ranks % x == 0 && ranks / x % y == 0) grids.push_back(fmt::format("{},{},{}", x, y, ranks / x / y));
    }
  }
  return grids;
}

TEST_F(GridNodesTest, EveryGridComputesWhatOneRankDoes) {
  const GridRun want = serial();
  for (const int64_t ranks : {1, 2, 4, 6, 8}) {
    for (const std::string& grid : grids_of(ranks)) {
      fs::remove_all(recipe_.out);
      expect_close(on(grid), want, grid);
    }
  }
}

}  // namespace
}  // namespace braid::train
