// Graphs on a grid of ranks: losses, weights and gradients of every grid beside those of one rank and of a dense
// network in FP64; bytes by formula; blocks that a permutation evens out; checkpoints that other grids resume.
#include "train/grid_nodes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <tuple>

#include "comm/inproc.h"
#include "graph/generate.h"
#include "graph/graph_write.h"
#include "support/data.h"
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

// Every parameter says how it divides: by outputs, of which 2 or 4 ranks together have every one once, or not at all,
// where no grid divides its kind.
TEST_F(GridNodesTest, EveryParameterDeclaresItsShard) {
  for (const gnn::Kind kind :
       {gnn::Kind::gcn, gnn::Kind::sage, gnn::Kind::gin, gnn::Kind::gat, gnn::Kind::edgeconv, gnn::Kind::monet}) {
    const bool on_grids = kind == gnn::Kind::gcn || kind == gnn::Kind::sage;
    models::MasterWeights masters(DType::f32);
    const auto shapes = gnn::params_of(
        gnn::NetworkSpec{.kind = kind, .features = 7, .hidden = 14, .classes = 9, .heads = 2, .kernels = 3});
    for (const Param& p : own_params(masters, shapes)) {
      ASSERT_EQ(p.shard.axis, on_grids ? Shard::Axis::rows : Shard::Axis::whole) << p.name;
      const models::MasterTensor& t = masters.tensor_of(p);
      EXPECT_EQ(p.role, t.matrix ? ParamRole::graph_map : t.shape.rank == 1 ? ParamRole::bias : ParamRole::none);
      for (const int64_t ranks : {2, 4}) {
        std::vector<int> held(static_cast<size_t>(t.shape[t.transposed ? 1 : 0]));
        if (t.shape.rank != 1 && !t.matrix) continue;  // vectors of attention, kernels
        for (int64_t rank = 0; rank < ranks; ++rank) {
          for (const Range& r : ranges_of(p, p.value.rows, p.value.cols, {.rank = rank, .ranks = ranks})) {
            for (int64_t i = r.begin; i < r.begin + r.count; ++i) ++held[static_cast<size_t>(i)];
          }
        }
        EXPECT_EQ(held, std::vector<int>(held.size(), on_grids ? 1 : static_cast<int>(ranks))) << p.name;
      }
    }
  }
}

// Rows are those of the declared shard over the outer axis, and what all ranks have makes the weights of one rank, bit
// for bit; a bias is on several.
TEST_F(GridNodesTest, PartsTogetherAreTheWhole) {
  for (const char* model : {"gcn", "sage"}) {
    recipe_.graph.model = model;
    Nodes one(recipe_);
    for (const char* grid : {"2,1,1", "1,2,1", "1,1,2", "4,1,1", "1,4,1", "1,1,4", "2,1,2", "1,2,2", "2,2,1"}) {
      recipe_.parallel.grid = grid;
      const auto ranks = static_cast<int>(recipe_.parallel.axes().model());
      std::vector<std::vector<float>> whole;
      std::mutex mutex;
      for (const models::MasterTensor& t : one.masters().tensors())
        whole.emplace_back(static_cast<size_t>(t.shape.count()), NAN);
      comm::run_in_process(ranks, {.per_node = ranks}, [&](comm::Group& world) {
        GridNodes nodes(recipe_, world);
        const auto [x, y, z] = *graph_grid(grid);
        gnn::GridRanks axes(world, {.x = x, .y = y, .z = z});
        const std::lock_guard<std::mutex> lock(mutex);
        for (const Param* p : nodes.params()) {
          const models::MasterTensor& t = nodes.masters().tensor_of(*p);
          const auto values = nodes.masters().values().subspan(static_cast<size_t>(t.offset));
          models::put_held(t, values.first(static_cast<size_t>(t.count())), whole[static_cast<size_t>(t.number)]);
          const comm::Group& outer = axes.roles(t.name[0] - '0').outer;
          const int64_t outputs = t.shape[0];
          const Range shard =
              ranges_of(*p, t.matrix ? outputs : 1, outputs, {.rank = outer.rank(), .ranks = outer.size()})[0];
          const Range own = t.held.empty() ? Range{0, outputs} : t.held[0];
          EXPECT_TRUE(shard.begin <= own.begin && own.begin + own.count <= shard.begin + shard.count) << p->name;
          EXPECT_TRUE(t.matrix || own.count == shard.count) << p->name;
        }
      });
      for (const models::MasterTensor& t : one.masters().tensors()) {
        const auto i = static_cast<size_t>(&t - one.masters().tensors().data());
        EXPECT_EQ(std::memcmp(whole[i].data(), one.masters().values().data() + t.offset, whole[i].size() * 4), 0)
            << model << grid << t.name;
      }
    }
  }
}

// Edges one way: what a rank sends forward is not what it sends back.
TEST_F(GridNodesTest, DirectedGraphsToo) {
  graph::GraphData data = graph::block_model({.nodes = 203, .classes = 11, .features = 17, .degree = 6, .seed = 4});
  const graph::Csr& both = data.graph.in;
  std::vector<graph::Edge> edges;
  for (int32_t i = 0; i < both.rows; ++i) {
    for (int64_t e = both.rowptr[static_cast<size_t>(i)]; e < both.rowptr[static_cast<size_t>(i) + 1]; ++e) {
      if (const int32_t source = both.col[static_cast<size_t>(e)]; source < i) edges.push_back({source, i});
    }
  }
  data.graph = graph::make_graph(graph::csr_of(both.rows, edges));
  graph::write_graph(recipe_.graph.path, data);
  const GridRun want = serial();
  for (const char* grid : {"2,1,1", "1,2,1", "1,1,2", "2,2,2", "3,1,2"}) {
    fs::remove_all(recipe_.out);
    expect_close(on(grid), want, grid);
  }
}

TEST_F(GridNodesTest, WeightsOfEdgesToo) {
  recipe_.graph.path = support::data("graph/weighted.safetensors");
  const GridRun want = serial();
  for (const char* grid : {"1,1,1", "2,2,1", "1,2,2"}) {
    fs::remove_all(recipe_.out);
    expect_close(on(grid), want, grid);
  }
}

// Self-loops whose weights differ, and without which the losses would be others.
TEST_F(GridNodesTest, WeightsOfLoopsToo) {
  graph::GraphData data = graph::block_model({.nodes = 203, .classes = 11, .features = 17, .degree = 6, .seed = 4});
  const GridRun plain = serial();
  data.graph.in.loop.resize(203);
  for (size_t i = 0; i < 203; ++i) data.graph.in.loop[i] = 0.25f * static_cast<float>(i % 9);
  data.graph.in.weight.assign(data.graph.in.col.size(), 0.5f);
  graph::write_graph(recipe_.graph.path, data);
  fs::remove_all(recipe_.out);
  const GridRun want = serial();
  EXPECT_GT(std::fabs(want.losses.back() - plain.losses.back()), 1e-3);
  for (const char* grid : {"1,1,1", "2,1,3", "1,4,1", "2,2,2"}) {
    fs::remove_all(recipe_.out);
    expect_close(on(grid), want, grid);
  }
}

TEST_F(GridNodesTest, SageToo) {
  recipe_.graph.model = "sage";
  for (const char* aggregate : {"mean", "add"}) {
    recipe_.graph.aggregate = aggregate;
    fs::remove_all(recipe_.out);
    const GridRun want = serial();
    for (const char* grid : {"1,1,1", "2,1,1", "1,2,1", "1,1,2", "2,2,2", "3,1,2", "1,4,2"}) {
      fs::remove_all(recipe_.out);
      expect_close(on(grid), want, std::string(aggregate) + " " + grid);
    }
  }
}

TEST_F(GridNodesTest, SixtyFourRanksToo) {
  recipe_.graph.hidden = 64;
  graph::write_graph(recipe_.graph.path,
                     graph::block_model({.nodes = 300, .classes = 65, .features = 67, .degree = 6, .seed = 4}));
  const GridRun want = serial();
  for (const char* grid : {"4,4,4", "64,1,1", "1,64,1", "1,1,64", "2,8,4"}) {
    fs::remove_all(recipe_.out);
    expect_close(on(grid), want, grid);
  }
}

// One to five layers: axes turn after three.
TEST_F(GridNodesTest, OfAnyDepth) {
  for (const int64_t layers : {1, 2, 4, 5}) {
    recipe_.graph.layers = layers;
    fs::remove_all(recipe_.out);
    const GridRun want = serial();
    for (const char* grid : {"2,3,1", "1,2,3"}) {
      fs::remove_all(recipe_.out);
      expect_close(on(grid), want, grid);
    }
  }
}

// A row-major matrix in FP64.
struct Dense {
  size_t rows = 0, cols = 0;
  std::vector<double> v = std::vector<double>(rows * cols);
  double& at(size_t i, size_t j) { return v[i * cols + j]; }
  double at(size_t i, size_t j) const { return v[i * cols + j]; }
};
// a b, either transposed.
Dense times(const Dense& a, const Dense& b, bool ta = false, bool tb = false) {
  const size_t rows = ta ? a.cols : a.rows, depth = ta ? a.rows : a.cols, cols = tb ? b.rows : b.cols;
  Dense y{rows, cols};
  for (size_t i = 0; i < rows; ++i) {
    for (size_t k = 0; k < depth; ++k) {
      for (size_t j = 0; j < cols; ++j) y.at(i, j) += (ta ? a.at(k, i) : a.at(i, k)) * (tb ? b.at(j, k) : b.at(k, j));
    }
  }
  return y;
}

Dense normalised(const graph::Csr& in) {
  const auto n = static_cast<size_t>(in.rows);
  Dense a{n, n};
  const auto root = [&](size_t i) {
    return 1 / std::sqrt(1.0 + static_cast<double>(in.degree(static_cast<int64_t>(i))));
  };
  for (size_t i = 0; i < n; ++i) {
    a.at(i, i) = root(i) * root(i);
    for (int64_t e = in.rowptr[i]; e < in.rowptr[i + 1]; ++e) {
      const auto j = static_cast<size_t>(in.col[static_cast<size_t>(e)]);
      a.at(i, j) += root(i) * root(j);
    }
  }
  return a;
}

struct DenseGradients {
  double loss = 0;
  std::vector<Dense> weights{}, biases{};
};

// Loss and gradients of gcn, written as its formula.
DenseGradients dense_gradients(const graph::GraphData& data, const std::vector<Dense>& w, const std::vector<Dense>& b) {
  const Dense a = normalised(data.graph.in);
  const auto nodes = static_cast<size_t>(data.nodes());
  Dense x{nodes, static_cast<size_t>(data.features)};
  std::copy(data.x.begin(), data.x.end(), x.v.begin());
  std::vector<Dense> h = {x}, s, y;
  for (size_t l = 0; l < w.size(); ++l) {
    s.push_back(times(a, h.back()));
    y.push_back(times(s.back(), w[l], false, true));
    for (size_t i = 0; i < nodes; ++i) {
      for (size_t c = 0; c < y.back().cols; ++c) y.back().at(i, c) += b[l].at(0, c);
    }
    h.push_back(y.back());
    for (double& value : h.back().v) value = std::max(value, 0.0);
  }
  DenseGradients g{.weights = std::vector<Dense>(w.size()), .biases = std::vector<Dense>(w.size())};
  const auto trained = static_cast<double>(std::count(data.train.begin(), data.train.end(), 1));
  Dense dy{nodes, y.back().cols};
  for (size_t i = 0; i < nodes; ++i) {
    if (!data.train[i]) continue;
    double sum = 0;
    for (size_t c = 0; c < dy.cols; ++c) sum += std::exp(y.back().at(i, c));
    const auto target = static_cast<size_t>(data.y[i]);
    g.loss += (std::log(sum) - y.back().at(i, target)) / trained;
    for (size_t c = 0; c < dy.cols; ++c)
      dy.at(i, c) = (std::exp(y.back().at(i, c)) / sum - (c == target ? 1 : 0)) / trained;
  }
  for (size_t l = w.size(); l-- > 0;) {
    g.weights[l] = times(dy, s[l], true);
    g.biases[l] = Dense{1, dy.cols};
    for (size_t i = 0; i < nodes; ++i) {
      for (size_t c = 0; c < dy.cols; ++c) g.biases[l].at(0, c) += dy.at(i, c);
    }
    if (l == 0) break;
    dy = times(a, times(dy, w[l]), true);
    for (size_t k = 0; k < dy.v.size(); ++k) dy.v[k] = y[l - 1].v[k] > 0 ? dy.v[k] : 0;
  }
  return g;
}

// Tensors of the whole network from an array of its masters: weights at even numbers, biases at odd.
std::vector<Dense> tensors_from(const models::MasterWeights& masters, std::span<const float> array, size_t first) {
  std::vector<Dense> list;
  for (size_t t = first; t < masters.tensors().size(); t += 2) {
    const models::MasterTensor& m = masters.tensors()[t];
    const auto rows = static_cast<size_t>(m.shape.rank > 1 ? m.shape[0] : 1);
    Dense& d = list.emplace_back(Dense{rows, static_cast<size_t>(m.count()) / rows});
    std::copy_n(array.begin() + m.offset, m.count(), d.v.begin());
  }
  return list;
}

void expect_gradients(const std::vector<Dense>& got, const std::vector<Dense>& want, const std::string& grid) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t l = 0; l < want.size(); ++l) {
    double most = 0;
    for (const double value : want[l].v) most = std::max(most, std::abs(value));
    for (size_t i = 0; i < want[l].v.size(); ++i)
      ASSERT_NEAR(got[l].v[i], want[l].v[i], 1e-5 * most) << grid << " layer " << l << " element " << i;
  }
}

TEST_F(GridNodesTest, GradientsAreThoseOfTheFormulaInFP64) {
  std::vector<std::string> grids;
  for (const int64_t ranks : {1, 2, 6, 8}) {
    for (std::string& grid : grids_of(ranks)) grids.push_back(std::move(grid));
  }
  for (const std::string& grid : grids) {
    recipe_.parallel.grid = grid;
    const auto ranks = static_cast<int>(recipe_.parallel.axes().model());
    comm::run_in_process(ranks, {.per_node = ranks}, [&](comm::Group& world) {
      Mesh mesh(recipe_, world);
      GridNodes nodes(recipe_, world);
      Arena arena;
      Ctx ctx{.arena = arena, .threads = 1};
      Sums sums;
      nodes.draw(0, false);
      nodes.masters().zero_grads(1);
      nodes.run(ctx, 0, 1, true, sums);
      const std::vector<float> values = mesh.assemble(nodes.masters(), nodes.whole(), nodes.masters().values(), false),
                               grads = mesh.assemble(nodes.masters(), nodes.whole(), nodes.masters().grads(), false);
      if (world.rank() > 0) return;
      const DenseGradients want =
          dense_gradients(graph::read_graph(recipe_.graph.path), tensors_from(nodes.whole(), values, 0),
                          tensors_from(nodes.whole(), values, 1));
      EXPECT_NEAR(sums.mean("loss"), want.loss, 1e-5 * want.loss) << grid;
      expect_gradients(tensors_from(nodes.whole(), grads, 0), want.weights, grid);
      expect_gradients(tensors_from(nodes.whole(), grads, 1), want.biases, grid);
    });
  }
}

TEST_F(GridNodesTest, AnyRanksResumeACheckpoint) {
  recipe_.steps = 6;
  recipe_.checkpoint.every = 3;
  recipe_.checkpoint.keep = 9;
  recipe_.ema_decay = 0.9;
  const GridRun whole = serial();
  fs::remove_all(recipe_.out);
  on("2,1,2");
  const std::string half = (fs::path(recipe_.out) / "checkpoints" / "step-00000003").string();
  for (const char* grid : {"1,3,2", "2,1,2", ""}) {
    fs::remove_all(fs::path(recipe_.out) / "log");
    const GridRun rest = *grid == 0 ? serial(half) : on(grid, half);
    ASSERT_EQ(rest.losses.size(), 3u) << grid;
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(rest.losses[i], whole.losses[3 + i], 1e-5 * whole.losses[3 + i]) << grid;
    ASSERT_EQ(rest.weights.size(), whole.weights.size());
    for (size_t i = 0; i < whole.weights.size(); ++i) EXPECT_NEAR(rest.weights[i], whole.weights[i], 1e-4) << grid;
  }
}

// Ranks that have copies of a block drop the same of it: else their weights would drift apart, and the loss with them.
TEST_F(GridNodesTest, DropoutAndBF16Train) {
  recipe_.steps = 30;
  const double plain = serial().losses.back();
  for (const char* grid : {"2,2,2", "1,4,1"}) {
    recipe_.graph.dropout = 0.2;
    recipe_.dtype = "f32";
    fs::remove_all(recipe_.out);
    const GridRun dropped = on(grid);
    EXPECT_LT(dropped.losses.back(), 0.8 * dropped.losses.front()) << grid;
    EXPECT_GT(dropped.losses.back(), plain) << grid;
    recipe_.graph.dropout = 0;
    recipe_.dtype = "bf16";
    fs::remove_all(recipe_.out);
    EXPECT_NEAR(on(grid).losses.back(), plain, 0.05 * plain) << grid;
  }
}

TEST_F(GridNodesTest, GridsThatCannotBe) {
  const auto error = [&](const char* grid, int ranks, auto&& change) {
    Recipe recipe = recipe_;
    recipe.parallel.grid = grid;
    change(recipe);
    return support::error_of([&] {
      check_mesh(recipe, ranks);
      comm::run_in_process(ranks, {.per_node = ranks}, [&](comm::Group& world) { GridNodes(recipe, world); });
    });
  };
  const auto none = [](Recipe&) {};
  const std::tuple<const char*, int, const char*> wrong[] = {
      {"", 4, "of a graph are those of a grid; try parallel.grid=\"1,1,4\""},
      {"2,2,1,1", 4, "of a graph has three axes"},
      {"2,2,2", 4, "does not make the number of ranks; got 2 x 2 x 2 = 8; expected 4"},
      {"1,12,1", 12, "more ranks than there are classes; got 12; expected at most 11"},
      {"14,1,1", 14, "more ranks than there are channels between layers; got 14; expected at most 13"}};
  for (const auto& [grid, ranks, text] : wrong)
    EXPECT_NE(error(grid, ranks, none).find(text), std::string::npos) << error(grid, ranks, none);
  EXPECT_NE(error("2,2,1", 4, [](Recipe& r) { r.graph.model = "gat"; }).find("does not divide gat; expected gcn"),
            std::string::npos);
  EXPECT_NE(error("2,2,1", 4, [](Recipe& r) { r.graph.model = "sage", r.graph.aggregate = "max"; })
                .find("does not divide a max; expected graph.aggregate mean or add"),
            std::string::npos);
  EXPECT_NE(
      error("2,2,1", 4, [](Recipe& r) { r.graph.sample = 3; }).find("[graph.sample] does not go with parallel.grid"),
      std::string::npos);
  EXPECT_NE(error("2,2,1", 4, [](Recipe& r) { r.graph.task = "edge"; }).find("does not divide graph.task = edge"),
            std::string::npos);
  EXPECT_NE(
      error("2,2,1", 4, [](Recipe& r) { r.optimizer.kind = "muon"; }).find("cannot be used with optimizer.kind = muon"),
      std::string::npos);
  EXPECT_NE(error("2,2,1", 4, [](Recipe& r) { r.parallel.zero = 1; }).find("cannot be used with tp"),
            std::string::npos);
}

}  // namespace
}  // namespace braid::train
