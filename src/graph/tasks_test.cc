// Files with many graphs or two types of nodes, batches of graphs, and the generated graphs of tasks.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "graph/batch.h"
#include "graph/generate_tasks.h"
#include "graph/graph_numbers.h"
#include "graph/graph_write.h"
#include "support/error_of.h"
#include "support/folder.h"

namespace braid::graph {
namespace {

using Pair = std::pair<int64_t, int64_t>;

std::set<Pair> edges_of(const Csr& csr) {
  std::set<Pair> edges;
  for (int64_t i = 0; i < csr.rows; ++i) {
    for (int64_t e = csr.rowptr[static_cast<size_t>(i)]; e < csr.rowptr[static_cast<size_t>(i) + 1]; ++e)
      edges.emplace(csr.col[static_cast<size_t>(e)], i);
  }
  return edges;
}

// Three graphs, the second without nodes: a pair, and a path of three.
struct ManyGraphs {
  std::vector<int64_t> rowptr = {0, 1, 2, 3, 5, 6}, col = {1, 0, 3, 2, 4, 3}, batch = {0, 0, 2, 2, 2}, y = {1, 0, 0},
                       train = {1, 1, 0};
  std::vector<float> x = {1, 2, 3, 4, 5};

  GraphData read() const {
    const auto integers = [](const std::vector<int64_t>& v) { return view_of(v.data(), {std::ssize(v)}); };
    return graph_of({{"rowptr", integers(rowptr)},
                     {"col", integers(col)},
                     {"batch", integers(batch)},
                     {"y", integers(y)},
                     {"train", integers(train)},
                     {"x", view_of(x.data(), {5, 1})}},
                    "file", Task::graph);
  }
};

TEST(ManyGraphs, AreReadOneAfterTheOther) {
  const GraphData data = ManyGraphs().read();
  EXPECT_EQ(data.begin, (std::vector<int64_t>{0, 2, 2, 5}));
  EXPECT_EQ(data.y, (std::vector<int32_t>{1, -1, 0}));  // nothing tells the class of the second
  EXPECT_EQ(data.train, (std::vector<uint8_t>{1, 0, 0}));
  ASSERT_EQ(data.notes.size(), 1u);
  EXPECT_NE(data.notes[0].find("1 graph has no nodes"), std::string::npos);
}

TEST(ManyGraphs, WhatIsWrongIsNamedInOneLine) {
  const std::map<std::string, std::function<void(ManyGraphs&)>> cases = {
      {"batch of node 3 is not the number of a graph, ascending; got 1; expected 2 to 2",
       [](ManyGraphs& f) { f.batch[3] = 1; }},
      {"batch of node 4 is not the number of a graph, ascending; got 3", [](ManyGraphs& f) { f.batch[4] = 3; }},
      {"batch of node 0 is not the number of a graph, ascending; got -1", [](ManyGraphs& f) { f.batch[0] = -1; }},
      {"the edge from node 1 to 2 leaves its graph; got graphs 0 and 2", [](ManyGraphs& f) { f.col[2] = 1; }},
      {"batch has another length; got 4; expected 5", [](ManyGraphs& f) { f.batch.pop_back(); }},
      {"train has another length; got 2; expected 3", [](ManyGraphs& f) { f.train.pop_back(); }},
      {"y of graph 2 is not a class; got -3", [](ManyGraphs& f) { f.y[2] = -3; }},
      {"has nothing to train on; expected a graph with nodes",
       [](ManyGraphs& f) {
         f.train = {0, 1, 0};
       }},
  };
  for (const auto& [text, spoil] : cases) {
    ManyGraphs file;
    spoil(file);
    const std::string error = support::error_of([&] { file.read(); });
    EXPECT_NE(error.find(text), std::string::npos) << error << "\nwanted: " << text;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

TEST(ManyGraphs, ABatchHasTheirEdgesAndNoOthers) {
  const GraphData data = motif_graphs({.graphs = 9, .seed = 5});
  const std::vector<int32_t> chosen = {7, 2, 3};
  const GraphBatch batch = batch_of(data, data.graph.in, chosen);
  check(batch.edges, "batch");
  std::set<Pair> want;
  int64_t first = 0;
  for (size_t g = 0; g < 3; ++g) {
    const int64_t begin = data.begin[static_cast<size_t>(chosen[g])],
                  count = data.begin[static_cast<size_t>(chosen[g]) + 1] - begin;
    for (const auto& [source, target] : edges_of(data.graph.in)) {
      if (target >= begin && target < begin + count) want.emplace(source - begin + first, target - begin + first);
    }
    for (int64_t i = 0; i < count; ++i) {
      EXPECT_EQ(batch.nodes[static_cast<size_t>(first + i)], begin + i);
      EXPECT_TRUE(edges_of(batch.members).contains({first + i, static_cast<int64_t>(g)}));
    }
    first += count;
  }
  EXPECT_EQ(edges_of(batch.edges), want);
  EXPECT_EQ(batch.members.edges(), first);
}

TEST(TwoTypes, AreWrittenAndRead) {
  const support::Folder folder;
  GraphData data = bipartite_blocks({.nodes = 30, .classes = 3, .features = 4, .degree = 5, .seed = 2}, 12);
  data.x_dst.resize(12 * 3);  // of another width
  data.features_dst = 3;
  write_graph(folder.path() / "g.safetensors", data);
  const GraphData read = read_graph(folder.path() / "g.safetensors", Task::edge);
  EXPECT_TRUE(read.bipartite());
  EXPECT_EQ(read.graph.in.cols, 30);
  EXPECT_EQ(read.graph.in.rows, 12);
  EXPECT_EQ(edges_of(read.graph.in), edges_of(data.graph.in));
  EXPECT_EQ(read.x, data.x);
  EXPECT_EQ(read.x_dst, data.x_dst);
  EXPECT_NE(support::error_of([&] {
              read_graph(folder.path() / "g.safetensors");
            }).find("has nodes of two types, with edges to predict"),
            std::string::npos);
}

// Edges alone are enough for a plan; what else a file has is read as its numbers.
TEST(PlannedGraphs, NeedEdgesAlone) {
  const std::vector<int64_t> rowptr = {0, 1, 3, 3}, col = {1, 0, 1}, y = {0, 4, -1};
  std::vector<io::StoredTensor> tensors = {{"col", view_of(col.data(), {3})}, {"rowptr", view_of(rowptr.data(), {4})}};
  EXPECT_NE(support::error_of([&] { graph_of(tensors, "file"); }), "");
  const GraphNumbers bare = numbers_of(tensors, "file");
  EXPECT_EQ(bare.nodes, 3);
  EXPECT_EQ(bare.edges, 2);  // of three one is a loop
  EXPECT_EQ(bare.features, 0);
  EXPECT_EQ(bare.classes, 0);
  const std::vector<float> x(6, 1);
  tensors.push_back({"x", view_of(x.data(), {3, 2})});
  tensors.push_back({"y", view_of(y.data(), {3})});
  const GraphNumbers whole = numbers_of(tensors, "file");
  EXPECT_EQ(whole.features, 2);
  EXPECT_EQ(whole.classes, 5);
}

TEST(TwoTypes, EdgesPreferTheirClass) {
  // Without noise the features are the class.
  const GraphData data = bipartite_blocks(
      {.nodes = 400, .classes = 4, .features = 8, .degree = 10, .homophily = 0.8, .signal = 1000, .seed = 1}, 200);
  int64_t inside = 0;
  const auto sign_of = [](const std::vector<float>& x, int64_t i) {
    std::vector<bool> signs;
    for (int64_t c = 0; c < 8; ++c) signs.push_back(x[static_cast<size_t>(i * 8 + c)] > 0);
    return signs;
  };
  std::map<std::vector<bool>, std::map<std::vector<bool>, int64_t>> joint;
  for (const auto& [source, target] : edges_of(data.graph.in))
    ++joint[sign_of(data.x, source)][sign_of(data.x_dst, target)];
  EXPECT_EQ(joint.size(), 4u);
  for (const auto& [from, to] : joint) {
    int64_t most = 0;
    for (const auto& [signs, count] : to) most = std::max(most, count);
    inside += most;
  }
  EXPECT_NEAR(static_cast<double>(inside) / static_cast<double>(data.graph.edges()), 0.8 + 0.2 / 4, 0.04);
}

bool has_clique(const std::set<Pair>& edges, int64_t first, int64_t last, int64_t size, std::vector<int64_t>& chosen) {
  if (std::ssize(chosen) == size) return true;
  for (int64_t i = first; i < last; ++i) {
    if (!std::all_of(chosen.begin(), chosen.end(), [&](int64_t j) { return edges.contains({i, j}); })) continue;
    chosen.push_back(i);
    if (has_clique(edges, i + 1, last, size, chosen)) return true;
    chosen.pop_back();
  }
  return false;
}

TEST(Motifs, OnlyTheCliqueDiffers) {
  const GraphData data = motif_graphs({.graphs = 60, .seed = 3});
  const std::set<Pair> edges = edges_of(data.graph.in);
  std::array<int64_t, 2> graphs{};
  for (size_t g = 0; g < 60; ++g) {
    const int64_t n = data.begin[g + 1] - data.begin[g];
    EXPECT_TRUE(12 <= n && n <= 28) << n;
    const auto within = std::count_if(edges.begin(), edges.end(), [&](const Pair& e) {
      return e.second >= data.begin[g] && e.second < data.begin[g + 1];
    });
    EXPECT_EQ(within, 2 * (n + 9));
    std::vector<int64_t> chosen;
    EXPECT_EQ(has_clique(edges, data.begin[g], data.begin[g + 1], 5, chosen), data.y[g] == 1) << g;
    ++graphs[static_cast<size_t>(data.y[g])];
  }
  EXPECT_GT(std::min(graphs[0], graphs[1]), 20);
  EXPECT_EQ(std::set<float>(data.x.begin(), data.x.end()), std::set<float>{1});
}

TEST(Citations, AreAsManyAsInCora) {
  const GraphData data = citation_twin(1);
  EXPECT_EQ(data.nodes(), 2708);
  EXPECT_EQ(data.graph.edges(), 2 * 5278);
  EXPECT_EQ(data.features, 1433);
  EXPECT_EQ(std::count(data.y.begin(), data.y.end(), 3), 818);
  EXPECT_EQ(std::count(data.train.begin(), data.train.end(), 1), 140);
  int64_t inside = 0;
  for (const auto& [a, b] : edges_of(data.graph.in))
    inside += data.y[static_cast<size_t>(a)] == data.y[static_cast<size_t>(b)] ? 1 : 0;
  EXPECT_NEAR(static_cast<double>(inside) / static_cast<double>(data.graph.edges()), 0.81, 0.015);
  EXPECT_NEAR(static_cast<double>(std::count(data.x.begin(), data.x.end(), 1.0f)) / 2708, 18, 0.5);
  EXPECT_GT(stats_of(data.graph.in).most, 20);
  EXPECT_NE(fingerprint(data.graph.in), fingerprint(citation_twin(2).graph.in));
}

}  // namespace
}  // namespace braid::graph
