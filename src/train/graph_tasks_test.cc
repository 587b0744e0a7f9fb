// Classes of graphs and edges in training: what batches sum up to, that held-out edges are hidden, and that what is
// learnt is in the graph.
#include "train/graph_tasks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "graph/generate_tasks.h"
#include "graph/graph_write.h"
#include "support/error_of.h"
#include "support/folder.h"
#include "train/graphs.h"
#include "train/links.h"
#include "train/trainer.h"

namespace braid::train {
namespace {

namespace fs = std::filesystem;

class GraphTasksTest : public support::FolderTest {
 protected:
  GraphTasksTest() {
    recipe_.objective = "graph";
    recipe_.out = (folder_ / "out").string();
    recipe_.dtype = "f32";
    recipe_.steps = 40;
    recipe_.optimizer = {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .weight_decay = 0, .clip = 0};
    recipe_.schedule.kind = "constant";
    recipe_.graph.path = (folder_ / "graph.safetensors").string();
  }
  void data(const graph::GraphData& data, const char* task, const char* model) {
    graph::write_graph(recipe_.graph.path, data);
    recipe_.graph.task = task;
    recipe_.graph.model = model;
  }
  // Trains from the beginning and returns the last held-out metrics.
  HeldOutLog train(int threads = 1, const std::string& from = {}) {
    if (from.empty()) fs::remove_all(recipe_.out);
    fs::remove_all(fs::path(recipe_.out) / "log");
    recipe_.eval.every = recipe_.steps;
    const auto objective = graph_objective(recipe_);
    Arena arena;
    Ctx ctx{.arena = arena, .threads = threads};
    Trainer trainer(recipe_, *objective, ctx);
    if (!from.empty()) trainer.resume(from);
    HeldOutLog held;
    losses_.clear();
    trainer.train({.step = [&](const StepLog& log) { losses_.push_back(log.loss); },
                   .held_out = [&](const HeldOutLog& log) { held = log; }});
    weights_.assign(objective->masters().values().begin(), objective->masters().values().end());
    return held;
  }
  static double metric(const HeldOutLog& log, const std::string& name) {
    for (const auto& [key, value] : log.metrics) {
      if (key == name) return value;
    }
    return NAN;
  }

  Recipe recipe_;
  std::vector<double> losses_;
  std::vector<float> weights_;
};

graph::GraphData blocks() {
  return graph::block_model(
      {.nodes = 400, .classes = 4, .features = 16, .degree = 12, .homophily = 0.9, .signal = 1.75, .seed = 3});
}
graph::GraphData without_edges(graph::GraphData data) {
  const int64_t n = data.graph.rows();
  data.graph = graph::make_graph(graph::csr_of(n, {}));
  return data;
}

// With a learning rate of 0 the mean of an epoch's batches is the loss of all graphs at once.
TEST_F(GraphTasksTest, BatchesOfGraphsAddUpToAllOfThem) {
  data(graph::motif_graphs({.graphs = 40, .train = 0.6, .seed = 1}), "graph", "gcn");
  recipe_.optimizer.lr = 0;
  recipe_.steps = 1;
  train();
  const double whole = losses_[0];
  const auto trained = Graphs(recipe_).data().train;
  const auto count = std::count(trained.begin(), trained.end(), 1);
  recipe_.batch = 1;
  recipe_.steps = 2 * count;
  train();
  double first = 0, second = 0;
  for (int64_t i = 0; i < count; ++i) {
    first += losses_[static_cast<size_t>(i)] / static_cast<double>(count);
    second += losses_[static_cast<size_t>(count + i)] / static_cast<double>(count);
  }
  EXPECT_NEAR(first, whole, 1e-5 * whole);
  EXPECT_NEAR(second, whole, 1e-5 * whole);
  const std::vector<double> a(losses_.begin(), losses_.begin() + count), b(losses_.begin() + count, losses_.end());
  EXPECT_NE(a, b);  // in another order
}

// Held-out passes leave the batch of all graphs, and what was measured of it, as it is.
TEST_F(GraphTasksTest, ABatchOfAllGraphsIsMadeOnce) {
  data(graph::motif_graphs({.graphs = 40, .train = 0.6, .seed = 1}), "graph", "gcn");
  Graphs graphs(recipe_);
  const auto made = [&](int64_t step, bool held_out) {
    graphs.draw(step, held_out);
    return graphs.edges().plans.get();
  };
  const auto *trained = made(0, false), *held = made(0, true);
  EXPECT_NE(trained, held);
  EXPECT_EQ(made(1, false), trained);
  EXPECT_EQ(made(1, true), held);
}

// What is held out is one batch, so that a pass draws it once, however many eval.batches asks for.
TEST_F(GraphTasksTest, HeldOutPassesAreOneBatch) {
  for (const char* task : {"node", "edge", "graph"}) {
    data(task[0] == 'g' ? graph::motif_graphs({.graphs = 40, .train = 0.6, .seed = 1}) : blocks(), task, "gcn");
    recipe_.graph.held_out = task[0] == 'e' ? 0.2 : Recipe().graph.held_out;
    EXPECT_EQ(graph_objective(recipe_)->held_out_batches(), 1) << task;
  }
}

// Nodes have one constant feature: without edges all graphs look alike but for their size, which says nothing.
TEST_F(GraphTasksTest, OnlyTheStructureTellsCliquesApart) {
  graph::GraphData graphs = graph::motif_graphs({.graphs = 300, .train = 0.6, .seed = 2});
  data(graphs, "graph", "gin");
  recipe_.graph.layers = 3;
  recipe_.graph.readout = "add";
  recipe_.batch = 60;
  recipe_.steps = 120;
  EXPECT_GT(metric(train(), "accuracy"), 0.85);
  const std::vector<float> whole = weights_;
  data(without_edges(graphs), "graph", "gin");
  EXPECT_LT(metric(train(), "accuracy"), 0.65);
  EXPECT_NE(whole, weights_);
}

TEST_F(GraphTasksTest, NeitherThreadsNorAResumptionChangeABit) {
  recipe_.steps = 12;
  recipe_.graph.dropout = 0.3;
  recipe_.checkpoint.every = 6;
  const auto half = [&] { return (fs::path(recipe_.out) / "checkpoints" / "step-00000006").string(); };
  data(graph::motif_graphs({.graphs = 30, .seed = 1}), "graph", "gat");
  recipe_.batch = 7;
  train();
  std::vector<float> whole = weights_;
  train(3, half());
  EXPECT_EQ(weights_, whole);
  data(graph::bipartite_blocks({.nodes = 60, .degree = 6}, 40), "edge", "sage");
  recipe_.batch = 100;
  train();
  whole = weights_;
  train(3, half());
  EXPECT_EQ(weights_, whole);
}

TEST_F(GraphTasksTest, AnythingOnTheGraphIsContentOfTheData) {
  recipe_.steps = 2;
  recipe_.checkpoint.every = 1;
  const auto expect = [&](graph::GraphData changed, const char* model, const auto& change) {
    const std::string task = changed.begin.empty() ? "edge" : "graph";
    data(changed, task.c_str(), model);
    train();
    change(changed);
    data(changed, task.c_str(), model);
    const std::string half = (fs::path(recipe_.out) / "checkpoints" / "step-00000001").string();
    EXPECT_NE(support::error_of([&] { train(1, half); }).find("content of the data is"), std::string::npos) << task;
  };
  const graph::GraphData pairs = graph::bipartite_blocks({.nodes = 60, .degree = 6}, 40);
  expect(pairs, "sage", [](graph::GraphData& d) { d.x[9] += 1; });
  expect(pairs, "sage", [](graph::GraphData& d) { d.x_dst[9] += 1; });
  const graph::GraphData graphs = without_edges(graph::motif_graphs({.graphs = 30, .seed = 1}));
  expect(graphs, "gin", [](graph::GraphData& d) { d.y[3] = 1 - d.y[3]; });
  expect(graphs, "gin", [](graph::GraphData& d) { --d.begin[7]; });  // a node is in the graph after its own
}

TEST_F(GraphTasksTest, EveryParameterLearnsInEveryTask) {
  recipe_.steps = 2;
  const auto expect = [&] {
    const auto before = graph_objective(recipe_);
    const std::vector<float> first(before->masters().values().begin(), before->masters().values().end());
    train();
    for (const models::MasterTensor& t : before->masters().tensors()) {
      int64_t changed = 0;
      for (int64_t i = t.offset; i < t.offset + t.count(); ++i)
        changed += first[static_cast<size_t>(i)] != weights_[static_cast<size_t>(i)] ? 1 : 0;
      EXPECT_GT(changed, t.count() / 5)  // relu is 0 for some channels in all nodes
          << recipe_.graph.task << " " << recipe_.graph.model << " " << t.name;
    }
  };
  graph::GraphData graphs = graph::motif_graphs({.graphs = 30, .seed = 1});
  for (size_t i = 0; i < graphs.x.size(); ++i) graphs.x[i] = 1 + 0.1f * static_cast<float>(i % 7);
  for (const char* model : {"gcn", "sage", "gin", "gat", "edgeconv", "monet"}) {
    data(graphs, "graph", model);
    expect();
    data(blocks(), "edge", model);
    expect();
  }
  data(graph::bipartite_blocks({.nodes = 60, .degree = 6}, 40), "edge", "sage");
  expect();
}

// One step of Muon changes every matrix otherwise than AdamW does, and nothing else; more of them learn.
TEST_F(GraphTasksTest, MuonIsForTheMatricesOfANetwork) {
  for (const char* model : {"gcn", "sage", "gin", "gat", "edgeconv", "monet"}) {
    data(blocks(), "node", model);
    recipe_.steps = 1;
    const auto at_first = graph_objective(recipe_);
    const auto step = [&](const char* kind) {
      recipe_.optimizer.kind = kind;
      train();
      return weights_;
    };
    const std::vector<float> adamw = step("adamw"), muon = step("muon");
    int64_t matrices = 0;
    for (const models::MasterTensor& t : at_first->masters().tensors()) {
      const bool same =
          std::equal(adamw.begin() + t.offset, adamw.begin() + t.offset + t.count(), muon.begin() + t.offset);
      EXPECT_NE(same, t.matrix) << model << " " << t.name;
      matrices += t.matrix ? 1 : 0;
    }
    EXPECT_GE(matrices, 2) << model;
    recipe_.steps = 40;
    step("muon");
    EXPECT_LT(losses_.back(), 0.8 * losses_.front()) << model;
  }
}

using Links2 = std::set<std::pair<int32_t, int32_t>>;
Links2 pairs_of(const graph::Csr& csr) {
  Links2 pairs;
  for (int64_t i = 0; i < csr.rows; ++i) {
    for (int64_t e = csr.rowptr[static_cast<size_t>(i)]; e < csr.rowptr[static_cast<size_t>(i) + 1]; ++e)
      pairs.emplace(csr.col[static_cast<size_t>(e)], static_cast<int32_t>(i));
  }
  return pairs;
}

TEST_F(GraphTasksTest, ASplitHidesBothDirectionsOfAnEdge) {
  for (const bool bipartite : {false, true}) {
    const graph::Csr all =
        bipartite ? graph::bipartite_blocks({.nodes = 80, .degree = 6}, 50).graph.in : blocks().graph.in;
    const LinkSplit split = split_links(all, bipartite, 0.2, 7);
    const Links2 edges = pairs_of(all), messages = pairs_of(split.messages);
    Links2 out;
    for (const graph::Edge& e : split.held_out) {
      EXPECT_TRUE(edges.contains({e.source, e.target}));
      EXPECT_FALSE(messages.contains({e.source, e.target}));
      EXPECT_TRUE(bipartite || !messages.contains({e.target, e.source}));
      EXPECT_TRUE(bipartite || !out.contains({e.target, e.source})) << "one pair twice";
      out.emplace(e.source, e.target);
    }
    Links2 trained;
    for (const graph::Edge& e : split.trained) trained.emplace(e.source, e.target);
    EXPECT_EQ(trained.size(), split.trained.size());
    const size_t ways = bipartite ? 1 : 2;
    EXPECT_EQ(ways * trained.size(), messages.size());
    EXPECT_EQ(ways * (trained.size() + out.size()), edges.size());
    EXPECT_NEAR(static_cast<double>(out.size()) / static_cast<double>(trained.size() + out.size()), 0.2, 0.05);
    // Pairs that are none.
    const auto negatives = draw_negatives(all, split.trained, bipartite, 1, 5);
    EXPECT_EQ(negatives.size(), trained.size());
    for (size_t i = 0; i < negatives.size(); ++i) {
      EXPECT_FALSE(edges.contains({negatives[i].source, negatives[i].target}));
      EXPECT_TRUE(bipartite ? negatives[i].source == split.trained[i].source
                            : negatives[i].source != negatives[i].target);
    }
  }
}

// A run whose held-out edges are not in the file at all has the same weights, bit for bit.
TEST_F(GraphTasksTest, HeldOutEdgesDoNotReachTheWeights) {
  recipe_.steps = 5;
  for (const bool bipartite : {false, true}) {
    graph::GraphData all = bipartite ? graph::bipartite_blocks({.nodes = 80, .degree = 6}, 50) : blocks();
    data(all, "edge", bipartite ? "sage" : "gcn");
    recipe_.graph.held_out = 0.2;
    train();
    const std::vector<float> hidden = weights_;
    all.graph =
        graph::make_graph(split_links(all.graph.in, bipartite, 0.2, static_cast<uint64_t>(recipe_.seed)).messages);
    data(all, "edge", recipe_.graph.model.c_str());
    recipe_.graph.held_out = 0;
    train();
    EXPECT_EQ(weights_, hidden);
  }
}

TEST(LinkMetrics, AreThoseOfEveryPair) {
  const std::vector<float> yes = {3, 1, 0.5f, 0.5f, -2}, no = {2, 0.5f, 0, -1, -1, -3};
  double won = 0;
  for (const float a : yes) {
    for (const float b : no) won += a > b ? 1 : a == b ? 0.5 : 0;
  }
  EXPECT_DOUBLE_EQ(auc_of(yes, no).value_or(0), won / 30);
  EXPECT_FALSE(auc_of(yes, {}));
  EXPECT_FALSE(auc_of({}, no));
  EXPECT_DOUBLE_EQ(hits_at(1, yes, no), 1.0 / 5);  // above 2
  EXPECT_DOUBLE_EQ(hits_at(2, yes, no), 2.0 / 5);  // above 0.5
  EXPECT_DOUBLE_EQ(hits_at(6, yes, no), 1);
  EXPECT_DOUBLE_EQ(hits_at(7, yes, no), 1);  // there are fewer
}

// The loss of the drawn pairs, and its gradients by differences.
TEST_F(GraphTasksTest, LossAndGradientsOfEdges) {
  for (const bool bipartite : {false, true}) {
    data(bipartite ? graph::bipartite_blocks({.nodes = 30, .features = 5, .degree = 4}, 20)
                   : graph::block_model({.nodes = 40, .features = 5, .degree = 4}),
         "edge", bipartite ? "sage" : "gcn");
    recipe_.graph.hidden = 6;
    Links links(recipe_);
    Arena arena;
    Ctx ctx{.arena = arena, .threads = 1};
    links.draw(3, false);
    const auto loss = [&] {
      double sum = 0;
      const std::vector<float> scores = links.scores(ctx);
      for (size_t i = 0; i < scores.size(); ++i) {
        const double p = 1 / (1 + std::exp(-static_cast<double>(scores[i])));
        sum -= std::log(links.labels()[i] ? p : 1 - p);
      }
      return sum / static_cast<double>(scores.size());
    };
    links.masters().zero_grads(1);
    Sums sums;
    links.run(ctx, 0, 1, true, sums);
    links.masters().sum_uses(1);
    EXPECT_NEAR(sums.mean("loss"), loss(), 1e-5);
    const std::vector<float> grads(links.masters().grads().begin(), links.masters().grads().end());
    const std::span<float> values = links.masters().values();
    for (size_t i = 0; i < values.size(); i += 7) {
      constexpr float kStep = 1e-2f;
      const float own = values[i];
      values[i] = own + kStep;
      links.masters().round(1);
      const double above = loss();
      values[i] = own - kStep;
      links.masters().round(1);
      const double below = loss();
      values[i] = own;
      links.masters().round(1);
      EXPECT_NEAR(static_cast<double>(grads[i]), (above - below) / (2 * static_cast<double>(kStep)), 2e-3) << i;
    }
  }
}

// Edges join nodes of one class, which neighbours tell better than noisy features do.
TEST_F(GraphTasksTest, NeighboursTellWhichNodesAreJoined) {
  recipe_.graph.hidden = 16;
  recipe_.steps = 60;
  data(blocks(), "edge", "gcn");
  const HeldOutLog learnt = train();
  EXPECT_GT(metric(learnt, "auc"), 0.75);
  EXPECT_GT(metric(learnt, "hits_at_20"), 0.02);
  recipe_.steps = 1;
  recipe_.optimizer.lr = 0;
  EXPECT_LT(metric(train(), "auc"), metric(learnt, "auc") - 0.03);
  recipe_.steps = 80;
  recipe_.optimizer.lr = 0.01;
  data(graph::bipartite_blocks({.nodes = 300, .degree = 10, .homophily = 0.9, .signal = 1.75, .seed = 4}, 200), "edge",
       "sage");
  EXPECT_GT(metric(train(), "auc"), 0.7);
}

TEST_F(GraphTasksTest, RecipesThatContradictThemselves) {
  const auto expect = [&](const char* text) {
    const std::string error = support::error_of([&] { graph_objective(recipe_); });
    EXPECT_NE(error.find(text), std::string::npos) << error << "\nwanted: " << text;
  };
  data(graph::bipartite_blocks({.nodes = 30, .degree = 3}, 20), "edge", "gcn");
  expect("[graph.model] does not take two types of nodes; got gcn; expected sage");
  data(without_edges(blocks()), "edge", "gcn");
  expect("has no edge to train on; got 0 edges");
  data(blocks(), "graph", "gcn");
  expect("has no tensor batch");
  recipe_.graph.sample = 3;
  expect("[graph.sample] does not go with graph.task = graph");
  recipe_.graph.sample = 0;
  graph::GraphData pair = graph::block_model({.nodes = 2, .classes = 1, .features = 2});
  pair.graph = graph::make_graph(graph::csr_of(2, {{0, 1}, {1, 0}}));
  data(pair, "edge", "gcn");
  recipe_.graph.held_out = 0;
  expect("joins all nodes");
}

}  // namespace
}  // namespace braid::train
