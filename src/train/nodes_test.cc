// Graph networks in training: PyTorch Geometric's losses step by step, what neighbours teach beyond features, bits that
// threads and a resumption leave alone, and recipes that contradict themselves.
#include "train/nodes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/philox.h"
#include "graph/generate_tasks.h"
#include "graph/graph_write.h"
#include "io/safetensors.h"
#include "io/safetensors_write.h"
#include "kernels/spmm/spmm_tiles.h"
#include "support/data.h"
#include "support/error_of.h"
#include "support/folder.h"
#include "train/trainer.h"

namespace braid::train {
namespace {

namespace fs = std::filesystem;

class NodesTest : public support::FolderTest {
 protected:
  NodesTest() {
    recipe_.objective = "graph";
    recipe_.out = (folder_ / "out").string();
    recipe_.dtype = "f32";
    recipe_.steps = 40;
    recipe_.optimizer = {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .weight_decay = 0, .clip = 0};
    recipe_.schedule.kind = "constant";
    recipe_.graph.path = support::data("graph/graph.safetensors");
  }
  void golden(const std::string& model) {
    recipe_.graph.model = model;
    recipe_.graph.init = support::data("graph/" + model + ".safetensors");
    recipe_.graph.heads = model == "gat" ? 4 : 1;
    recipe_.graph.kernels = model == "monet" ? 3 : 1;
    recipe_.graph.eps = model == "gin" ? 0.1 : 0;
    recipe_.graph.aggregate = model == "monet" ? "add" : "";
  }
  std::vector<double> train(int threads = 1, const std::string& from = {}) {
    fs::remove_all(fs::path(recipe_.out) / "log");
    Nodes nodes(recipe_);
    Arena arena;
    Ctx ctx{.arena = arena, .threads = threads};
    Trainer trainer(recipe_, nodes, ctx);
    if (!from.empty()) trainer.resume(from);
    std::vector<double> losses;
    trainer.train({.step = [&](const StepLog& log) { losses.push_back(log.loss); }});
    weights_.assign(nodes.masters().values().begin(), nodes.masters().values().end());
    logits_ = nodes.logits(ctx);
    return losses;
  }

  // The accuracy on held-out nodes after training.
  double held_out(const graph::GraphData& data, const char* model, int64_t steps) {
    fs::remove_all(recipe_.out);
    recipe_.graph.path = (folder_ / "graph.safetensors").string();
    graph::write_graph(recipe_.graph.path, data);
    recipe_.graph.model = model;
    recipe_.steps = steps;
    train();
    double right = 0, all = 0;
    for (size_t i = 0; i < data.y.size(); ++i) {
      if (data.train[i]) continue;
      const auto row = logits_.begin() + static_cast<std::ptrdiff_t>(i) * data.classes;
      right += std::max_element(row, row + data.classes) - row == data.y[i] ? 1 : 0;
      all += 1;
    }
    return right / all;
  }

  Recipe recipe_;
  std::vector<float> weights_, logits_;
};

TEST_F(NodesTest, LossesAreThoseOfPyTorchGeometric) {
  for (const char* model : {"gcn", "sage", "gin", "gat", "edgeconv", "monet"}) {
    SCOPED_TRACE(model);
    fs::remove_all(recipe_.out);
    golden(model);
    const io::Safetensors file(recipe_.graph.init);
    const View want = file.need("losses");
    const std::vector<double> got = train();
    ASSERT_EQ(std::ssize(got), want.count());
    for (int64_t i = 0; i < want.count(); ++i)
      EXPECT_NEAR(got[static_cast<size_t>(i)], element(want, i), 1e-5 * element(want, i)) << "step " << i + 1;
  }
}

// With weights of edges, and of self-loops beside repeated edges: its layers, and its losses in a whole graph, a sample
// of all neighbours, and unfused.
TEST_F(NodesTest, WeightsOfEdgesAreThoseOfPyTorchGeometric) {
  for (const char* name : {"graph/weighted.safetensors", "graph/weighted_loops.safetensors"}) {
    SCOPED_TRACE(name);
    recipe_.graph.path = recipe_.graph.init = support::data(name);
    recipe_.graph.hidden = 8;
    recipe_.steps = 20;
    const io::Safetensors file(recipe_.graph.path);
    const View out = file.need("out"), want = file.need("losses");
    for (const int64_t sample : {0, 1000}) {
      for (const bool fuse : {true, false}) {
        fs::remove_all(recipe_.out);
        recipe_.graph.sample = sample;
        recipe_.graph.rewrites_off = fuse ? std::vector<std::string>{} : std::vector<std::string>{"fuse"};
        Nodes nodes(recipe_);
        Arena arena;
        Ctx ctx{.arena = arena};
        const std::vector<float> logits = nodes.logits(ctx);
        for (int64_t i = 0; i < out.count(); ++i)
          EXPECT_NEAR(logits[static_cast<size_t>(i)], element(out, i), 2e-5) << i;
        const std::vector<double> got = train();
        ASSERT_EQ(std::ssize(got), want.count());
        for (int64_t i = 0; i < want.count(); ++i)
          EXPECT_NEAR(got[static_cast<size_t>(i)], element(want, i), 2e-5 * element(want, i))
              << sample << " step " << i;
      }
    }
  }
}

TEST_F(NodesTest, WeightsOfEdgesAreReadOrSaidToDoNothing) {
  recipe_.graph.path = support::data("graph/weighted.safetensors");
  const auto said = [&](const char* model, const char* line) {
    recipe_.graph.model = model;
    const std::vector<std::string> lines = Nodes(recipe_).describe();
    return std::find(lines.begin(), lines.end(), line) != lines.end();
  };
  EXPECT_TRUE(said("gcn", "weights from -1.5 to 2.99903"));
  EXPECT_TRUE(said("gat", "the weights of the edges do nothing in gat, only in gcn"));
  // Another weight is another graph.
  recipe_.graph.model = "gcn";
  const Facts facts = Nodes(recipe_).facts();
  graph::GraphData data = graph::read_graph(recipe_.graph.path);
  recipe_.graph.path = (folder_ / "graph.safetensors").string();
  data.graph.in.weight[1] += 1;
  graph::write_graph(recipe_.graph.path, data);
  EXPECT_NE(Nodes(recipe_).facts(), facts);
  // What has no root.
  const auto row =
      std::find_if(data.graph.in.rowptr.begin(), data.graph.in.rowptr.end(), [](int64_t p) { return p > 0; });
  for (int64_t e = 0; e < *row; ++e) data.graph.in.weight[static_cast<size_t>(e)] = -3;
  graph::write_graph(recipe_.graph.path, data);
  const std::string error = support::error_of([&] { Nodes{recipe_}; });
  EXPECT_NE(error.find("[edge_weight] the edges to node "), std::string::npos) << error;
}

// Whichever rewrite is off, in whole graphs and in samples.
TEST_F(NodesTest, RewritesLeaveTheLosses) {
  for (const char* model : {"gcn", "sage", "gat", "edgeconv", "monet"}) {
    golden(model);
    recipe_.steps = 4;
    for (const int64_t sample : {0, 3}) {
      recipe_.graph.sample = sample;
      recipe_.graph.rewrites_off.clear();
      fs::remove_all(recipe_.out);
      const std::vector<double> want = train();
      recipe_.graph.rewrites_off = {"postpone", "order", "fuse", "recompute", "first"};
      fs::remove_all(recipe_.out);
      const std::vector<double> got = train();
      for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(got[i], want[i], 1e-4 * want[i]) << model << " " << sample << " " << i;
    }
  }
}

TEST_F(NodesTest, BF16TrainsAlmostAlike) {
  for (const char* model : {"gcn", "sage", "gin", "gat", "edgeconv", "monet"}) {
    SCOPED_TRACE(model);
    fs::remove_all(recipe_.out);
    golden(model);
    recipe_.dtype = "f32";
    const double wide = train().back();
    fs::remove_all(recipe_.out);
    recipe_.dtype = "bf16";
    EXPECT_NEAR(train().back(), wide, 0.05 * wide + 0.02);
  }
}

TEST_F(NodesTest, NeitherThreadsNorAResumptionChangeABit) {
  golden("gat");
  recipe_.graph.dropout = 0.3;
  recipe_.graph.attention_dropout = 0.2;
  recipe_.steps = 20;
  recipe_.checkpoint.every = 10;
  recipe_.checkpoint.keep = 9;
  train();
  const std::vector<float> whole = weights_;
  const std::string half = (fs::path(recipe_.out) / "checkpoints" / "step-00000010").string();
  train(3, half);
  EXPECT_EQ(weights_, whole);
  EXPECT_TRUE(fs::exists(fs::path(recipe_.out) / "config.json"));
  // What was written are first weights of another run.
  recipe_.graph.init = (fs::path(recipe_.out) / "model.safetensors").string();
  recipe_.out = (folder_ / "next").string();
  EXPECT_EQ(Nodes(recipe_).masters().values()[5], whole[5]);
  recipe_.graph.model = "gcn";
  recipe_.graph.heads = 1;
  EXPECT_NE(support::error_of([&] { Nodes{recipe_}; }).find("0.att_dst would be ignored"), std::string::npos);
}

// Where edges share rows of features, means run on tiles, whose last bits are others (sums of a few BF16 numbers are
// exact in either order); elsewhere the run is the same.
TEST_F(NodesTest, MeansOnTilesWhereTheyPay) {
  const graph::GraphData blocks =
      graph::block_model({.nodes = 300, .classes = 5, .features = 64, .degree = 6, .seed = 4});
  recipe_.graph.path = (folder_ / "graph.safetensors").string();
  recipe_.graph.model = "sage";
  recipe_.graph.aggregate = "mean";
  recipe_.graph.hidden = 32;
  recipe_.dtype = "bf16";
  recipe_.steps = 4;
  for (const bool band : {false, true}) {
    graph::GraphData data = blocks;
    if (band) data.graph = graph::make_graph(graph::band_graph(300, 6));
    graph::write_graph(recipe_.graph.path, data);
    fs::remove_all(recipe_.out);
    recipe_.graph.tiles = false;
    const std::vector<double> rows = train();
    const std::vector<float> weights = weights_;
    fs::remove_all(recipe_.out);
    recipe_.graph.tiles = true;
    const std::vector<double> tiles = train(2);
    const std::string note = Nodes(recipe_).describe().back();
    EXPECT_NE(note.find("edges share a row"), std::string::npos) << note;
    const bool taken = band && spmm_tiles_here();
    EXPECT_EQ(note.find("not taken") == std::string::npos, taken) << note;
    EXPECT_EQ(weights_ == weights, !taken);
    for (size_t i = 0; i < rows.size(); ++i) EXPECT_NEAR(tiles[i], rows[i], 2e-3 * rows[i]) << i;
  }
}

TEST_F(NodesTest, AttentionIsDroppedInTrainingAlone) {
  golden("gat");
  recipe_.steps = 1;
  const std::vector<double> plain = train();
  Arena arena;
  Ctx ctx{.arena = arena};
  const std::vector<float> logits = Nodes(recipe_).logits(ctx);
  fs::remove_all(recipe_.out);
  recipe_.graph.attention_dropout = 0.5;
  EXPECT_EQ(Nodes(recipe_).logits(ctx), logits);
  EXPECT_GT(std::abs(train()[0] - plain[0]), 1e-3);
}

// As PyTorch Geometric's strict load_state_dict does: a layer, a term or an eps that the network lacks is not dropped.
TEST_F(NodesTest, InitRefusesWhatItWouldIgnore) {
  golden("gin");
  const io::Safetensors fixture(recipe_.graph.init);
  const std::string path = recipe_.graph.init = (folder_ / "gin.safetensors").string();
  const std::vector<float> more(64, 7.0f);
  const float eps = 0.1f;
  const auto error_with = [&](const std::string& name, const View& view) {
    std::vector<io::TensorSpec> specs;
    for (const io::StoredTensor& t : fixture.tensors()) specs.push_back({t.name, t.view.dtype, t.view.shape});
    specs.push_back({name, DType::f32, view.shape});
    fs::remove(path);
    io::SafetensorsWriter file(path, specs);
    for (const io::TensorSpec& spec : file.order())
      file.write(spec.name, spec.name == name ? view : fixture.need(spec.name));
    file.finish();
    return support::error_of([&] { Nodes{recipe_}; });
  };
  const auto expect = [&](const std::string& name, const View& view, const char* text) {
    EXPECT_NE(error_with(name, view).find(text), std::string::npos) << error_with(name, view) << "\nwanted: " << text;
  };
  const View one = view_of(more.data(), {1}), matrix = view_of(more.data(), {8, 8});
  expect("2.nn.0.weight", matrix,
         "2.nn.0.weight would be ignored; got F32 [8, 8]; expected weights of gin with 2 layers");
  expect("0.res.weight", matrix, "0.res.weight would be ignored");
  expect("lin.weight", matrix, "lin.weight would be ignored");
  expect("0.eps", one, "0.eps is another number; got 7; expected 0.1, which every layer has; try graph.eps");
  recipe_.graph.init = support::data("graph/gin.safetensors");
  recipe_.graph.hidden = 8;
  EXPECT_NE(support::error_of([&] {
              Nodes{recipe_};
            }).find("0.nn.0.weight has another type or shape; got F32 [32, 24]; expected F32 [16, 24]"),
            std::string::npos);
  recipe_.graph.hidden = 16;
  recipe_.graph.init = path;
  expect("1.eps", matrix, "1.eps has another type or shape; got F32 [8, 8]; expected F32 [1]");
  expect("2.eps", one, "2.eps would be ignored");
  EXPECT_EQ(error_with("1.eps", view_of(&eps, {1})), "");
  EXPECT_EQ(error_with("other", matrix), "");
}

// GINConv's state has them, so that its load_state_dict wants them.
TEST_F(NodesTest, FilesOfGinHaveItsEps) {
  golden("gin");
  recipe_.steps = 1;
  train();
  const io::Safetensors file(GraphWeights::file_in(recipe_.out));
  for (const char* name : {"0.eps", "1.eps"}) {
    const View eps = file.need(name);
    EXPECT_EQ(eps.shape, (Shape{1}));
    EXPECT_EQ(element(eps, 0), static_cast<double>(0.1f));
  }
  recipe_.graph.init = GraphWeights::file_in(recipe_.out).string();
  Nodes again(recipe_);
  EXPECT_EQ(std::vector<float>(again.masters().values().begin(), again.masters().values().end()), weights_);
}

TEST_F(NodesTest, AnythingOnTheGraphIsContentOfTheData) {
  recipe_.graph.model = "sage";
  recipe_.steps = 4;
  recipe_.checkpoint.every = 2;
  const graph::GraphData data = graph::block_model({.nodes = 100, .seed = 3});
  recipe_.graph.path = (folder_ / "graph.safetensors").string();
  graph::write_graph(recipe_.graph.path, data);
  train();
  const std::string half = (fs::path(recipe_.out) / "checkpoints" / "step-00000002").string();
  const auto expect = [&](const char* text, const auto& change) {
    graph::GraphData other = data;
    change(other);
    fs::remove(recipe_.graph.path);
    graph::write_graph(recipe_.graph.path, other);
    EXPECT_NE(support::error_of([&] { train(1, half); }).find(text), std::string::npos) << text;
  };
  constexpr const char* kText = "does not match the recipe: content of the data is";
  expect(kText, [](graph::GraphData& d) { d.x[d.x.size() / 2] += 1; });
  expect(kText, [](graph::GraphData& d) { d.y[50] = d.y[50] == 0 ? 1 : 0; });
  expect(kText, [](graph::GraphData& d) { d.train[50] = 1 - d.train[50]; });
  fs::remove(recipe_.graph.path);
  graph::write_graph(recipe_.graph.path, data);
  EXPECT_EQ(std::ssize(train(1, half)), 2);
}

// In the order of random numbers of the item and the epoch, whichever step is asked for first.
TEST(Epochs, HaveEachItemOnceInOrdersOfTheirOwn) {
  const std::vector<int32_t> items = {3, 5, 8, 13, 21, 34, 55, 89, 144, 233};
  Epochs epochs(items, 7), other(items, 7);
  std::vector<std::vector<int32_t>> orders;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int32_t> all;
    for (int64_t step = 4 * epoch; step < 4 * epoch + 4; ++step) {
      const std::vector<int32_t> batch = epochs.batch(3, step);
      EXPECT_EQ(std::ssize(batch), step % 4 == 3 ? 1 : 3);
      all.insert(all.end(), batch.begin(), batch.end());
    }
    std::vector<std::pair<uint32_t, int32_t>> want;
    for (const int32_t item : items)
      want.emplace_back(philox({7, 0x6f726465}, static_cast<uint64_t>(item), static_cast<uint32_t>(epoch))[0], item);
    std::sort(want.begin(), want.end());
    for (size_t i = 0; i < items.size(); ++i) EXPECT_EQ(all[i], want[i].second) << epoch << " " << i;
    orders.push_back(all);
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_EQ(other.batch(3, 9), std::vector<int32_t>(orders[2].begin() + 3, orders[2].begin() + 6));
  EXPECT_EQ(other.batch(10, 0), orders[0]);
}

// Features alone tell about two thirds of the held-out nodes apart, even with the true means; with those of neighbours
// a network tells at least 85%.
TEST_F(NodesTest, NeighboursTellMoreThanFeatures) {
  const graph::BlockModel model{.nodes = 1200, .classes = 4, .features = 16, .degree = 12, .signal = 1.75, .seed = 3};
  const graph::GraphData data = graph::block_model(model);
  std::vector<double> means(static_cast<size_t>(4 * 16)), counts(4);
  for (size_t i = 0; i < data.y.size(); ++i) {
    const auto y = static_cast<size_t>(data.y[i]);
    counts[y] += 1;
    for (size_t c = 0; c < 16; ++c) means[y * 16 + c] += static_cast<double>(data.x[i * 16 + c]);
  }
  const auto accuracy = [&](auto&& score) {
    double right = 0, all = 0;
    for (size_t i = 0; i < data.y.size(); ++i) {
      if (data.train[i]) continue;
      size_t best = 0;
      for (size_t y = 1; y < 4; ++y) best = score(i, y) > score(i, best) ? y : best;
      right += best == static_cast<size_t>(data.y[i]) ? 1 : 0;
      all += 1;
    }
    return right / all;
  };
  const double alone = accuracy([&](size_t i, size_t y) {
    double distance = 0;
    for (size_t c = 0; c < 16; ++c)
      distance += std::pow(static_cast<double>(data.x[i * 16 + c]) - means[y * 16 + c] / counts[y], 2);
    return -distance;
  });
  EXPECT_GT(alone, 0.55);
  EXPECT_LT(alone, 0.75);
  recipe_.graph.path = (folder_ / "graph.safetensors").string();
  graph::write_graph(recipe_.graph.path, data);
  recipe_.steps = 60;
  for (const char* kind : {"gcn", "sage", "gin", "gat"}) {
    fs::remove_all(recipe_.out);
    recipe_.graph.model = kind;
    recipe_.graph.dropout = 0.3;
    recipe_.graph.heads = kind == std::string("gat") ? 2 : 1;
    train();
    EXPECT_GT(accuracy([&](size_t i, size_t y) { return logits_[i * 4 + y]; }), 0.85) << kind;
  }
}

// A network over features alone, gin without edges, beside gcn with them.
TEST_F(NodesTest, EdgesTellMoreThanAnMlp) {
  for (const uint64_t seed : {3, 4, 5}) {
    graph::GraphData data =
        graph::block_model({.nodes = 1200, .classes = 4, .features = 16, .degree = 12, .signal = 1.75, .seed = seed});
    const double with = held_out(data, "gcn", 60);
    data.graph = graph::make_graph(graph::csr_of(1200, {}));
    const double without = held_out(data, "gin", 60);
    EXPECT_GT(with, 0.85) << seed;
    EXPECT_GT(without, 0.55) << seed;
    EXPECT_LT(without, 0.75) << seed;
  }
}

// Twenty nodes of each class, as in Cora: words tell some of the others, citations more.
TEST_F(NodesTest, ATwinOfCora) {
  recipe_.graph.dropout = 0.5;
  recipe_.optimizer.weight_decay = 0.05;  // decoupled: times the learning rate, 5e-4
  graph::GraphData data = graph::citation_twin(1);
  const double with = held_out(data, "gcn", 60);
  data.graph = graph::make_graph(graph::csr_of(data.graph.rows(), {}));
  const double without = held_out(data, "gin", 60);
  EXPECT_GT(with, 0.75);
  EXPECT_LT(without, 0.65);
}

// A sample that takes every neighbour, in one batch, is the whole graph seen from the nodes to train on: but for the
// order of sums, its losses are those of full batches.
TEST_F(NodesTest, SamplesOfEverythingAreTheWholeGraph) {
  for (const char* model : {"gcn", "sage", "gin", "gat", "edgeconv", "monet"}) {
    SCOPED_TRACE(model);
    fs::remove_all(recipe_.out);
    golden(model);
    recipe_.steps = 5;
    recipe_.graph.sample = recipe_.batch = 0;
    const std::vector<double> full = train();
    fs::remove_all(recipe_.out);
    recipe_.graph.sample = 1000;
    recipe_.batch = 1000;
    const std::vector<double> sampled = train();
    for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(sampled[i], full[i], 1e-4 * full[i]) << i;
  }
}

TEST_F(NodesTest, SamplesTeachToo) {
  recipe_.graph.path = (folder_ / "graph.safetensors").string();
  graph::write_graph(recipe_.graph.path, graph::block_model({.nodes = 1200, .degree = 12, .signal = 1.75, .seed = 3}));
  recipe_.graph.model = "sage";
  recipe_.graph.sample = 4;
  recipe_.batch = 100;
  recipe_.steps = 60;
  recipe_.graph.dropout = 0.2;
  recipe_.checkpoint.every = 30;
  train();
  const std::vector<float> whole = weights_;
  const graph::GraphData data = graph::read_graph(recipe_.graph.path);
  double right = 0, all = 0;
  for (size_t i = 0; i < data.y.size(); ++i) {
    if (data.train[i]) continue;
    const auto row = logits_.begin() + static_cast<std::ptrdiff_t>(i) * 4;
    right += std::max_element(row, row + 4) - row == data.y[i] ? 1 : 0;
    all += 1;
  }
  EXPECT_GT(right / all, 0.85);
  train(3, (fs::path(recipe_.out) / "checkpoints" / "step-00000030").string());
  EXPECT_EQ(weights_, whole);
}

TEST_F(NodesTest, EveryParameterLearns) {
  for (const char* model : {"gcn", "sage", "gin", "gat", "edgeconv", "monet"}) {
    fs::remove_all(recipe_.out);
    golden(model);
    recipe_.graph.init.clear();
    recipe_.steps = 2;
    Nodes before(recipe_);
    const std::vector<float> first(before.masters().values().begin(), before.masters().values().end());
    train();
    for (const models::MasterTensor& t : before.masters().tensors()) {
      int64_t changed = 0;
      for (int64_t i = t.offset; i < t.offset + t.count(); ++i)
        changed += first[static_cast<size_t>(i)] != weights_[static_cast<size_t>(i)] ? 1 : 0;
      EXPECT_GT(changed, t.count() / 2) << model << " " << t.name;
    }
  }
}

TEST_F(NodesTest, RecipesThatContradictThemselves) {
  const auto expect = [&](const char* text, const auto& spoil) {
    Recipe recipe = recipe_;
    spoil(recipe);
    const std::string error = support::error_of([&] { Nodes{recipe}; });
    EXPECT_NE(error.find(text), std::string::npos) << error << "\nwanted: " << text;
  };
  expect("has no graph.path", [](Recipe& r) { r.graph.path.clear(); });
  expect("has no out", [](Recipe& r) { r.out.clear(); });
  expect("[graph.tiles] multiplies features in bf16; got dtype = f32", [](Recipe& r) { r.graph.tiles = true; });
  expect("[graph.tiles] is for sums and means; got max; expected gcn, gin, or sage with add or mean",
         [](Recipe& r) { r.graph.tiles = true, r.graph.model = "sage", r.graph.aggregate = "max"; });
  expect("[graph.tiles] is for steps over a whole graph on one rank",
         [](Recipe& r) { r.graph.tiles = true, r.graph.sample = 3; });
  expect("[accumulate] does not divide a graph", [](Recipe& r) { r.accumulate = 2; });
  expect("[batch] goes with graph.sample", [](Recipe& r) { r.batch = 8; });
  expect("[data.kind] does not go with", [](Recipe& r) { r.data.kind = "markov"; });
  expect("[memory] the run does not fit", [](Recipe& r) { r.graph.hidden = 1 << 20, r.graph.layers = 9; });
  expect("[lora.rank] does not go with", [](Recipe& r) { r.lora.rank = 4; });
  expect("[nest.budgets] does not go with", [](Recipe& r) { r.nest.budgets = {0.5}; });
  expect("[dropout] does not go with objective = \"graph\"; got 0.5; try graph.dropout",
         [](Recipe& r) { r.dropout = 0.5; });
  expect("[graph.attention_dropout] does not go with weights of edges in memory", [](Recipe& r) {
    r.graph.model = "gat";
    r.graph.attention_dropout = 0.5;
    r.graph.rewrites_off = {"fuse"};
  });
  expect("[graph.rewrites_off] is not a rewrite; got fusing", [](Recipe& r) { r.graph.rewrites_off = {"fusing"}; });
  expect("[graph.aggregate] does not go with gcn; got max; expected add", [](Recipe& r) { r.graph.aggregate = "max"; });
  expect("[graph.aggregate] does not go with edgeconv; got mean", [](Recipe& r) {
    r.graph.model = "edgeconv";
    r.graph.aggregate = "mean";
  });
}

}  // namespace
}  // namespace braid::train
