// Orders of nodes: each is a permutation under which the graph, its features and classes stay the same.
#include "graph/reorder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "graph/generate.h"

namespace braid::graph {
namespace {

// Node i of a graph whose nodes were numbered at random, by a multiplication modulo their number.
GraphData shuffled(const Csr& csr, int64_t factor) {
  GraphData data{.graph = make_graph(csr), .features = 2, .classes = 3};
  for (int64_t i = 0; i < csr.rows; ++i) {
    data.x.insert(data.x.end(), {static_cast<float>(i), static_cast<float>(-i)});
    data.y.push_back(static_cast<int32_t>(i % 3));
    data.train.push_back(i % 2 == 0);
  }
  std::vector<int32_t> nodes;
  for (int64_t i = 0; i < csr.rows; ++i) nodes.push_back(static_cast<int32_t>(i * factor % csr.rows));
  permute(data, nodes);
  return data;
}

// Edges between nodes as their features name them.
std::set<std::pair<int32_t, int32_t>> named_edges(const GraphData& data) {
  std::set<std::pair<int32_t, int32_t>> edges;
  const Csr& csr = data.graph.in;
  const auto name = [&](int64_t node) { return static_cast<int32_t>(data.x[static_cast<size_t>(2 * node)]); };
  for (int64_t i = 0; i < csr.rows; ++i)
    for (int64_t e = csr.rowptr[static_cast<size_t>(i)]; e < csr.rowptr[static_cast<size_t>(i) + 1]; ++e)
      edges.insert({name(i), name(csr.col[static_cast<size_t>(e)])});
  return edges;
}

TEST(Reorder, EveryOrderKeepsTheGraph) {
  for (const NodeOrder order : {NodeOrder::degree, NodeOrder::rcm, NodeOrder::labels}) {
    // R-MAT has isolated nodes, and is directed here by leaving out what points upwards from even nodes.
    std::vector<Edge> edges;
    const Csr whole = rmat_graph(8, 3, 5);
    for (int32_t i = 0; i < whole.rows; ++i)
      for (int64_t e = whole.rowptr[static_cast<size_t>(i)]; e < whole.rowptr[static_cast<size_t>(i) + 1]; ++e)
        if (const int32_t j = whole.col[static_cast<size_t>(e)]; i % 2 == 1 || j < i) edges.push_back({j, i});
    GraphData data = shuffled(csr_of(whole.rows, edges), 101);
    const auto before = named_edges(data);
    const std::vector<int32_t> nodes = reordered(data.graph, order);
    permute(data, nodes);
    EXPECT_NO_THROW(check(data.graph.in, "reordered"));
    EXPECT_EQ(named_edges(data), before);
    std::set<float> all;
    for (int64_t i = 0; i < whole.rows; ++i) {
      const auto name = static_cast<int64_t>(data.x[static_cast<size_t>(2 * i)]);
      all.insert(data.x[static_cast<size_t>(2 * i)]);
      EXPECT_EQ(data.x[static_cast<size_t>(2 * i + 1)], static_cast<float>(-name));
      EXPECT_EQ(data.y[static_cast<size_t>(i)], name % 3);
      EXPECT_EQ(data.train[static_cast<size_t>(i)], name % 2 == 0);
    }
    EXPECT_EQ(std::ssize(all), whole.rows);
  }
}

TEST(Reorder, DegreesFall) {
  GraphData data = shuffled(rmat_graph(8, 4, 1), 77);
  permute(data, reordered(data.graph, NodeOrder::degree));
  for (int64_t i = 1; i < data.graph.rows(); ++i) EXPECT_GE(data.graph.in.degree(i - 1), data.graph.in.degree(i)) << i;
}

TEST(Reorder, CuthillMcKeeFindsTheBandOfAGrid) {
  constexpr int64_t kSide = 24;
  GraphData data = shuffled(grid_graph(kSide, kSide), 175);
  EXPECT_GT(mean_span(data.graph.in), 4.0 * kSide);
  permute(data, reordered(data.graph, NodeOrder::rcm));
  int64_t widest = 0;
  const Csr& csr = data.graph.in;
  for (int64_t i = 0; i < csr.rows; ++i)
    for (int64_t e = csr.rowptr[static_cast<size_t>(i)]; e < csr.rowptr[static_cast<size_t>(i) + 1]; ++e)
      widest = std::max<int64_t>(widest, std::abs(csr.col[static_cast<size_t>(e)] - i));
  EXPECT_LE(widest, kSide + 1);
}

// Cliques, as components of their own and in a ring, where label propagation may join neighbours.
TEST(Reorder, LabelsPutCommunitiesTogether) {
  constexpr int32_t kCliques = 12, kSize = 9;
  for (const bool ring : {false, true}) {
    std::vector<Edge> edges;
    for (int32_t clique = 0; clique < kCliques; ++clique) {
      for (int32_t a = 0; a < kSize; ++a)
        for (int32_t b = 0; b < kSize; ++b)
          if (a != b) edges.push_back({clique * kSize + a, clique * kSize + b});
      const int32_t other = (clique + 1) % kCliques;
      if (ring) edges.push_back({clique * kSize, other * kSize});
      if (ring) edges.push_back({other * kSize, clique * kSize});
    }
    GraphData data = shuffled(csr_of(kCliques * kSize, edges), 25);
    const double before = mean_span(data.graph.in);
    permute(data, reordered(data.graph, NodeOrder::labels));
    int changes = 0;
    const auto clique = [&](int64_t node) {
      return static_cast<int64_t>(data.x[static_cast<size_t>(2 * node)]) / kSize;
    };
    for (int64_t i = 1; i < data.graph.rows(); ++i) changes += clique(i) != clique(i - 1);
    if (!ring) {
      EXPECT_EQ(changes, kCliques - 1);
    }
    EXPECT_LT(mean_span(data.graph.in), before / 3);
  }
}

TEST(Reorder, GraphsWithoutNodesOrEdges) {
  for (const NodeOrder order : {NodeOrder::degree, NodeOrder::rcm, NodeOrder::labels}) {
    EXPECT_TRUE(reordered(make_graph({}), order).empty());
    EXPECT_EQ(reordered(make_graph({.rows = 3, .cols = 3, .rowptr = {0, 0, 0, 0}}), order).size(), 3U);
  }
  EXPECT_EQ(mean_span({}), 0);
}

}  // namespace
}  // namespace braid::graph
