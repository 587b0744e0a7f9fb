// The structure of graphs, and files that are wrong in one way each.
#include "graph/graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "graph/batch.h"
#include "graph/generate.h"
#include "graph/graph_data.h"
#include "graph/graph_write.h"
#include "graph/grid_cut.h"
#include "graph/read_text.h"
#include "graph/reorder.h"
#include "graph/sample.h"
#include "support/error_of.h"
#include "support/folder.h"
#include "sys/error.h"

namespace braid::graph {
namespace {

TEST(Graph, TheTransposeHasTheSameEdgesUnderTheirNumbers) {
  const Graph g = make_graph({.rows = 4, .cols = 5, .rowptr = {0, 2, 2, 5, 6}, .col = {1, 4, 0, 1, 1, 3}});
  check(g.out, "transpose");
  ASSERT_EQ(g.out.rows, 5);
  ASSERT_EQ(g.out.cols, 4);
  std::set<int32_t> seen;
  for (int64_t j = 0; j < g.out.rows; ++j) {
    for (int64_t at = g.out.rowptr[static_cast<size_t>(j)]; at < g.out.rowptr[static_cast<size_t>(j) + 1]; ++at) {
      const int32_t e = g.order[static_cast<size_t>(at)], i = g.out.col[static_cast<size_t>(at)];
      EXPECT_EQ(g.in.col[static_cast<size_t>(e)], j);
      EXPECT_TRUE(g.in.rowptr[static_cast<size_t>(i)] <= e && e < g.in.rowptr[static_cast<size_t>(i) + 1]);
      seen.insert(e);
    }
  }
  EXPECT_EQ(std::ssize(seen), 6);
  EXPECT_EQ(g.inverse_degree, (std::vector<float>{0.5f, 0, 1.0f / 3, 1}));
}

TEST(Graph, EdgesInAnyOrderBecomeRows) {
  int64_t removed = 0;
  const Csr csr = csr_of(3, {{2, 0}, {1, 1}, {1, 0}, {0, 2}, {2, 0}}, &removed);
  EXPECT_EQ(csr.rowptr, (std::vector<int64_t>{0, 2, 2, 3}));
  EXPECT_EQ(csr.col, (std::vector<int32_t>{1, 2, 0}));
  EXPECT_EQ(removed, 2);  // a self-loop and a repetition
}

TEST(Graph, SelfLoopsAreTakenOut) {
  Csr csr{.rows = 3, .cols = 3, .rowptr = {0, 2, 3, 5}, .col = {0, 1, 1, 0, 2}};
  EXPECT_EQ(remove_self_loops(csr), 3);
  EXPECT_EQ(csr.rowptr, (std::vector<int64_t>{0, 1, 1, 2}));
  EXPECT_EQ(csr.col, (std::vector<int32_t>{1, 0}));
}

TEST(Graph, StatsAndFingerprints) {
  const Csr csr{.rows = 4, .cols = 4, .rowptr = {0, 3, 3, 4, 4}, .col = {1, 2, 3, 0}};
  const RowStats s = stats_of(csr);
  EXPECT_EQ(s.edges, 4);
  EXPECT_EQ(s.most, 3);
  EXPECT_EQ(s.empty, 2);
  EXPECT_EQ(s.mean, 1);
  EXPECT_NEAR(s.deviation, std::sqrt(1.5), 1e-12);
  EXPECT_NEAR(s.spread, std::sqrt(1.5), 1e-12);
  EXPECT_EQ(s.p99, 3);
  EXPECT_EQ(stats_of({}).p99, 0);
  const RowStats many = stats_of(star_graph(401));  // 200 nodes around node 0, 200 alone
  EXPECT_EQ(many.most, 200);
  EXPECT_EQ(many.p99, 1);  // one of 401 has more
  EXPECT_EQ(many.empty, 200);
  EXPECT_EQ(stats_of(band_graph(1000, 3)).p99, 6);
  Csr few{.rows = 200, .cols = 2};  // of every 200 rows three have two edges
  for (int64_t i = 0; i < few.rows; ++i) {
    few.col.push_back(0);
    if (i < 3) few.col.push_back(1);
    few.rowptr.push_back(few.edges());
  }
  EXPECT_EQ(stats_of(few).p99, 2);
  Csr other = csr;
  other.col[3] = 1;
  EXPECT_NE(fingerprint(csr), fingerprint(other));
  other = csr;
  other.rowptr[1] = 2, other.rowptr[2] = 2;
  EXPECT_NE(fingerprint(csr), fingerprint(other));
}

TEST(Graph, WithoutEdgesViewsAreNotNull) {
  const Graph g = make_graph({.rows = 2, .cols = 2, .rowptr = {0, 0, 0}, .col = {}});
  EXPECT_TRUE(g.in.col_view() && g.order_view() && g.out.rowptr_view());
  EXPECT_EQ(g.in.col_view().dim(0), 0);
}

// The tensors of a graph of three nodes, to be spoilt.
struct File {
  std::vector<int64_t> rowptr = {0, 1, 3, 3}, col = {1, 0, 2}, y = {0, 1, -1}, train = {1, 1, 0};
  std::vector<float> x = {1, 2, 3, 4, 5, 6};
  std::set<std::string> left_out{};
  Shape x_shape{3, 2};

  GraphData read(Task task = Task::node, int64_t classes = 0) const {
    std::vector<io::StoredTensor> list;
    const auto add = [&](const char* name, const View& view) {
      if (!left_out.contains(name)) list.push_back({name, view});
    };
    const auto integers = [](const std::vector<int64_t>& v) { return view_of(v.data(), {std::ssize(v)}); };
    add("rowptr", integers(rowptr));
    add("col", integers(col));
    add("y", integers(y));
    add("train", integers(train));
    add("x", view_of(x.data(), x_shape));
    return graph_of(list, "file", task, classes);
  }
};

TEST(GraphData, AFileIsRead) {
  const GraphData data = File().read();
  EXPECT_EQ(data.nodes(), 3);
  EXPECT_EQ(data.graph.edges(), 3);
  EXPECT_EQ(data.features, 2);
  EXPECT_EQ(data.classes, 2);
  EXPECT_EQ(data.train, (std::vector<uint8_t>{1, 1, 0}));
  EXPECT_TRUE(data.notes.empty());
  File all;
  all.left_out = {"train"};
  EXPECT_EQ(all.read().train, (std::vector<uint8_t>{1, 1, 0}));  // the class of the last is unknown
}

TEST(GraphData, WhatIsWrongIsNamedInOneLine) {
  const std::map<std::string, std::function<void(File&)>> cases = {
      {"row 1 of the graph is not sorted; got 0 after 2",
       [](File& f) {
         f.col = {1, 2, 0};
       }},
      {"row 0 of the graph names a node that does not exist; got 3", [](File& f) { f.col[0] = 3; }},
      {"names a node that does not exist; got -1", [](File& f) { f.col[0] = -5; }},
      {"names a node that does not exist", [](File& f) { f.col[0] = int64_t{1} << 40; }},
      {"row 1 of the graph ends before it begins",
       [](File& f) {
         f.rowptr = {0, 1, 0, 3};
       }},
      {"row 0 of the graph ends beyond the last edge",
       [](File& f) {
         f.rowptr = {0, 9, 9, 9};
       }},
      {"row 2 of the graph ends before the last edge",
       [](File& f) {
         f.rowptr = {0, 1, 1, 1};
       }},
      {"row 0 of the graph does not start at edge 0",
       [](File& f) {
         f.rowptr = {1, 1, 3, 3};
       }},
      {"is a graph without nodes", [](File& f) { f.rowptr = {0}; }},
      {"feature 1 of node 2 is not finite; got nan", [](File& f) { f.x[5] = std::nanf(""); }},
      {"feature 0 of node 1 is not finite; got inf", [](File& f) { f.x[2] = INFINITY; }},
      {"x has another shape; got [2, 3]; expected [3, features]",
       [](File& f) {
         f.x_shape = {2, 3};
       }},
      {"x has another type or shape; got F32 [6]", [](File& f) { f.x_shape = {6}; }},
      {"is a graph without features: it has no tensor x; expected x [nodes, width] F32; try braid data graph EDGES "
       "--features F.npy, or a source that has features: blocks",
       [](File& f) { f.left_out = {"x"}; }},
      {"has no tensor col", [](File& f) { f.left_out = {"col"}; }},
      {"y has another length; got 2; expected 3",
       [](File& f) {
         f.y = {0, 1};
       }},
      {"y of node 1 is not a class; got -2", [](File& f) { f.y[1] = -2; }},
      {"has too many classes", [](File& f) { f.y[1] = int64_t{1} << 50; }},
      {"has no node of a known class",
       [](File& f) {
         f.y = {-1, -1, -1};
       }},
      {"train of node 1 is not a flag; got 7", [](File& f) { f.train[1] = 7; }},
      {"has nothing to train on",
       [](File& f) {
         f.train = {0, 0, 1};
       }},
  };
  for (const auto& [text, spoil] : cases) {
    File file;
    spoil(file);
    const std::string error = support::error_of([&] { file.read(); });
    EXPECT_NE(error.find(text), std::string::npos) << error << "\nwanted: " << text;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

// As many edges as an I32 cannot number: refused by the shape alone, without a byte read.
TEST(GraphData, TooManyEdgesAreRefusedBeforeMemoryIsTaken) {
  const std::vector<int64_t> rowptr = {0, 0};
  const std::vector<io::StoredTensor> list = {{"col", view_of(rowptr.data(), {int64_t{1} << 31})},
                                              {"rowptr", view_of(rowptr.data(), {2})}};
  const std::string error = support::error_of([&] { graph_of(list, "file"); });
  EXPECT_NE(error.find("has too many edges; got 2147483648"), std::string::npos) << error;
}

// For a network that knows three classes and is only run.
TEST(GraphData, ClassesNeedNotBeKnownToPredictThem) {
  File file;
  file.y = {-1, -1, -1};
  EXPECT_EQ(file.read(Task::node, 3).classes, 3);
  file.left_out = {"y", "train"};
  const GraphData data = file.read(Task::node, 3);
  EXPECT_EQ(data.y, (std::vector<int32_t>{-1, -1, -1}));
  EXPECT_EQ(data.train, (std::vector<uint8_t>{0, 0, 0}));
  EXPECT_NE(support::error_of([&] { file.read(); }).find("is a graph without classes: it has no tensor y"),
            std::string::npos);
  file.left_out.clear();
  file.y = {0, 3, -1};
  EXPECT_NE(
      support::error_of([&] { file.read(Task::node, 3); }).find("has too many classes; got 3; expected at most 2"),
      std::string::npos);
}

TEST(GraphData, WhatLearningShouldKnowIsNoted) {
  File loops;
  loops.rowptr = {0, 2, 3, 3};
  loops.col = {0, 1, 1};
  GraphData data = loops.read();
  ASSERT_EQ(data.notes.size(), 1u);
  EXPECT_NE(data.notes[0].find("2 self-loops"), std::string::npos);
  EXPECT_EQ(data.graph.edges(), 1);
  File lonely;
  lonely.rowptr = {0, 0, 0, 0};
  lonely.col = {};
  lonely.y = {0, 3, -1};
  data = lonely.read();
  ASSERT_EQ(data.notes.size(), 2u);
  EXPECT_NE(data.notes[0].find("no edges"), std::string::npos);
  EXPECT_NE(data.notes[1].find("2 of 4 classes have no node"), std::string::npos);
}

TEST(GraphText, MatrixMarketCountsFromOneAndMirrorsSymmetricFiles) {
  const TextGraph general = parse_matrix_market(
      "%%MatrixMarket matrix coordinate real general\n% made by hand\n3 3 3\n1 2 0.5\n3 1 -2\n2 2 7\n", "m");
  EXPECT_EQ(general.csr.rowptr, (std::vector<int64_t>{0, 1, 1, 2}));
  EXPECT_EQ(general.csr.col, (std::vector<int32_t>{1, 0}));
  EXPECT_EQ(general.removed, 1);
  const TextGraph symmetric =
      parse_matrix_market("%%MatrixMarket Matrix Coordinate Pattern Symmetric\r\n3 3 2\r\n2 1\r\n3 1\r\n", "m");
  EXPECT_EQ(symmetric.csr.rowptr, (std::vector<int64_t>{0, 2, 3, 4}));
  EXPECT_EQ(symmetric.csr.col, (std::vector<int32_t>{1, 2, 0, 0}));
}

TEST(GraphText, BannersAreReadInAnyCase) {
  for (const char* banner :
       {"%%matrixmarket matrix coordinate pattern general", "%%MATRIXMARKET MATRIX COORDINATE INTEGER GENERAL",
        "%%MatrixMarket\tmatrix  coordinate Real general \r"}) {
    const std::string text = std::string(banner) + "\n2 2 1\n1 2 3\n";
    EXPECT_TRUE(is_matrix_market(text)) << banner;
    EXPECT_EQ(parse_matrix_market(text, "m").csr.col, (std::vector<int32_t>{1})) << banner;
  }
  for (const char* text : {"%% MatrixMarket matrix", "% MatrixMarket", "", "\n", "%%MatrixMarkets matrix"})
    EXPECT_FALSE(is_matrix_market(text)) << text;
}

// As the text has them: neither the mirror image of a diagonal entry nor the second direction of an edge is one.
TEST(GraphText, WhatIsLeftOutIsCountedOnce) {
  const auto symmetric = [](const char* entries) {
    return parse_matrix_market(std::string("%%MatrixMarket matrix coordinate pattern symmetric\n") + entries, "m")
        .removed;
  };
  EXPECT_EQ(symmetric("3 3 4\n1 1\n2 1\n3 1\n3 3\n"), 2);
  EXPECT_EQ(symmetric("3 3 3\n2 1\n2 1\n3 2\n"), 1);
  EXPECT_EQ(parse_edge_list("0 1\n1 0\n1 2\n2 1\n", "e", true).removed, 0);
  EXPECT_EQ(parse_edge_list("0 1\n1 0\n1 1\n0 1\n", "e", true).removed, 2);
  EXPECT_EQ(parse_edge_list("0 1\n1 0\n1 1\n0 1\n", "e", false).removed, 2);
}

TEST(GraphText, TheLastNodesOfAListMayHaveNoEdge) {
  EXPECT_EQ(parse_edge_list("0 1\n", "e", true, 4).csr.rowptr, (std::vector<int64_t>{0, 1, 2, 2, 2}));
  EXPECT_EQ(parse_edge_list("0 5\n", "e", true, 4).csr.rows, 6);
}

TEST(GraphText, EdgeListsMayHaveCommentsAndMoreColumns) {
  const char* text = "# SNAP\n0 1 1 x\n\n2\t1 0.25\n1,0 1\n1 0 1.0 9";
  EXPECT_EQ(parse_edge_list(text, "e", false).csr.rowptr, (std::vector<int64_t>{0, 1, 3, 3}));
  EXPECT_EQ(parse_edge_list(text, "e", false).csr.col, (std::vector<int32_t>{1, 0, 2}));
  EXPECT_EQ(parse_edge_list(text, "e", false).removed, 1);
  const char* once = "# SNAP\n0 1 1 x\n\n2\t1 0.25\n1,0 1\n";
  EXPECT_EQ(parse_edge_list(once, "e", true).csr.col, (std::vector<int32_t>{1, 0, 2, 1}));
}

// Row by row: who sends, and with which weight.
std::vector<std::vector<std::pair<int, float>>> rows_of(const Csr& csr) {
  std::vector<std::vector<std::pair<int, float>>> rows(static_cast<size_t>(csr.rows));
  for (size_t i = 0; i < rows.size(); ++i) {
    for (int64_t e = csr.rowptr[i]; e < csr.rowptr[i + 1]; ++e)
      rows[i].emplace_back(csr.col[static_cast<size_t>(e)], csr.weight_of(e));
  }
  return rows;
}
using Rows = std::vector<std::vector<std::pair<int, float>>>;

TEST(GraphText, ValuesAreWeights) {
  const auto read = [](const char* kind, Weights weights = Weights::read) {
    return parse_matrix_market(
               fmt::format("%%MatrixMarket matrix coordinate {}\n3 3 4\n3 1 -2\n2 2 7\n3 2 1e-1\n3 1 -2\n", kind), "m",
               weights)
        .csr;
  };
  EXPECT_EQ(rows_of(read("real general")), (Rows{{}, {}, {{0, -4.f}, {1, 0.1f}}}));
  EXPECT_EQ(rows_of(read("real symmetric")), (Rows{{{2, -4.f}}, {{2, 0.1f}}, {{0, -4.f}, {1, 0.1f}}}));
  EXPECT_EQ(rows_of(read("real skew-symmetric")), (Rows{{{2, 4.f}}, {{2, -0.1f}}, {{0, -4.f}, {1, 0.1f}}}));
  EXPECT_EQ(parse_matrix_market("%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 7\n1 2 1\n", "m").csr.loop,
            (std::vector<float>{7, 1}));
  EXPECT_TRUE(read("pattern symmetric").weight.empty());
  EXPECT_TRUE(read("real symmetric", Weights::ignored).weight.empty());
  EXPECT_EQ(rows_of(parse_matrix_market("%%MatrixMarket matrix coordinate integer general\n2 2 1\n1 2 +3\n", "m").csr),
            (Rows{{{1, 3.f}}, {}}));
  EXPECT_EQ(rows_of(parse_matrix_market("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2 1e-50\n", "m").csr),
            (Rows{{{1, 0.f}}, {}}));
}

TEST(GraphText, TheThirdColumnOfAListIsAWeight) {
  const char* text = "# a b weight\n2 0 0.5\n0,1,2,more\n0 0 9\n1 0 2\n";
  EXPECT_EQ(rows_of(parse_edge_list(text, "e", true).csr), (Rows{{{1, 2.f}, {2, 0.5f}}, {{0, 2.f}}, {{0, 0.5f}}}));
  EXPECT_EQ(rows_of(parse_edge_list(text, "e", false).csr), (Rows{{{1, 2.f}, {2, 0.5f}}, {{0, 2.f}}, {}}));
  EXPECT_TRUE(parse_edge_list(text, "e", false, 0, Weights::ignored).csr.weight.empty());
}

// As PyTorch Geometric sums them: repeated edges add up, self-loops have a weight of their own.
TEST(GraphText, WeightsOfRepeatedEdgesAddUpAndSelfLoopsKeepTheirs) {
  const TextGraph one = parse_edge_list("0 1 3\n0 1 2\n2 2 9\n2 2 4\n0 1 3\n1 2 1\n", "e", false);
  EXPECT_EQ(rows_of(one.csr), (Rows{{}, {{0, 8.f}}, {{1, 1.f}}}));
  EXPECT_EQ(one.csr.loop, (std::vector<float>{1, 1, 4}));
  EXPECT_EQ(one.removed, 4);
  const TextGraph both = parse_edge_list("0 1 3\n0 1 2\n1 0 5\n1 1 0\n", "e", true);
  EXPECT_EQ(rows_of(both.csr), (Rows{{{1, 5.f}}, {{0, 5.f}}}));
  EXPECT_EQ(both.csr.loop, (std::vector<float>{1, 0}));
  EXPECT_TRUE(parse_edge_list("0 1\n0 0\n", "e", true).csr.loop.empty());
  EXPECT_NE(support::error_of([] { parse_edge_list("0 1 3e38\n0 1 3e38\n", "e", false); }).find("is not finite"),
            std::string::npos);
  // Through a file, another order of the nodes, and a batch.
  const support::Folder folder;
  GraphData data;
  data.graph = make_graph(one.csr);
  data.features = 1;
  data.x = {1, 2, 3};
  permute(data, std::vector<int32_t>{2, 0, 1});
  EXPECT_EQ(data.graph.in.loop, (std::vector<float>{4, 1, 1}));
  write_graph(folder.path() / "g.safetensors", data);
  const GraphData read = read_graph(folder.path() / "g.safetensors", Task::edge, 0);
  EXPECT_EQ(read.graph.in.loop, data.graph.in.loop);
  EXPECT_EQ(read.graph.in.weight, data.graph.in.weight);
  EXPECT_EQ(read.graph.edges(), 2);
  EXPECT_EQ(read.notes[0], "1 self-loop of the file is no edge: gcn takes its weight in place of 1");
}

TEST(GraphText, WeightsThatContradictOneAnotherAreRefused) {
  const auto expect = [](const char* wanted, const std::string& text, bool both_ways = false) {
    const std::string error = support::error_of(
        [&] { is_matrix_market(text) ? parse_matrix_market(text, "file") : parse_edge_list(text, "file", both_ways); });
    EXPECT_NE(error.find(wanted), std::string::npos) << error << "\nwanted: " << wanted;
  };
  const std::string skew = "%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 2\n";
  expect("line 4: the weight is not a finite number", skew + "2 1 3\n1 2\n");
  expect("line 3: the weight is not a finite number; got nan", skew + "2 1 nan\n1 2 3\n");
  expect("line 3: the weight is not a finite number; got 1e99", skew + "2 1 1e99\n1 2 3\n");
  expect("line 3: the weight is not a finite number; got 3x; try --unweighted", skew + "2 1 3x\n1 2 3\n");
  expect("the edge from node 1 to 0 has two weights; got 2 and 3", "0 1 3\n1 0 2\n", true);
  expect("the edge from node 1 to 0 has two weights; got -3 and 3", skew + "2 1 3\n1 2 3\n");
  expect("is not a matrix of coordinates", "%%MatrixMarket matrix coordinate pattern skew-symmetric\n2 2 0\n");
  expect("line 2: has no weight, lines before it have one; got 1 2", "0 1 3\n1 2\n");
  expect("line 3: has a weight, lines before it have none; got 1 2", "0 1\n\n1 2 0.5\n");
}

// A file, another order of the nodes, parts of the rows and columns, a batch of graphs, and neighbours drawn.
TEST(GraphWeights, FollowTheirEdges) {
  const support::Folder folder;
  GraphData data;
  data.graph = make_graph(parse_edge_list("1 0 2\n3 0 4\n2 1 7\n0 2 3\n3 2 8\n1 3 5\n0 0 1\n", "e", false).csr);
  data.features = 1;
  data.x = {0, 1, 2, 3};
  data.y = {0, 0, 1, 1};
  data.train = {1, 1, 1, 1};
  write_graph(folder.path() / "g.safetensors", data);
  const Rows rows = {{{1, 2.f}, {3, 4.f}}, {{2, 7.f}}, {{0, 3.f}, {3, 8.f}}, {{1, 5.f}}};
  EXPECT_EQ(rows_of(read_graph(folder.path() / "g.safetensors").graph.in), rows);
  const std::vector<int32_t> order = {3, 0, 2, 1};
  EXPECT_EQ(rows_of(block_of(data.graph.in, order, {.begin = 1, .count = 2}, {.begin = 0, .count = 3})),
            (Rows{{{0, 4.f}}, {{0, 8.f}, {1, 3.f}}}));
  const Sample sample = sample_neighbours(data.graph.in, std::vector<int32_t>{2, 0}, 1, 9, {});
  ASSERT_EQ(sample.nodes.size(), 4u);
  const Rows drawn = rows_of(sample.blocks[0].in);
  for (const auto& [row, node] : {std::pair<size_t, size_t>{0, 2}, {1, 0}}) {
    std::vector<std::pair<int, float>> named;
    for (const auto& [at, weight] : drawn[row]) named.emplace_back(sample.nodes[static_cast<size_t>(at)], weight);
    std::sort(named.begin(), named.end());
    EXPECT_EQ(named, rows[node]);
  }
  data.begin = {0, 0, 4};
  EXPECT_EQ(rows_of(batch_of(data, data.graph.in, std::vector<int32_t>{1, 0}).edges), rows);
  data.begin.clear();
  permute(data, order);
  EXPECT_EQ(rows_of(data.graph.in), (Rows{{{3, 5.f}}, {{0, 4.f}, {3, 2.f}}, {{0, 8.f}, {1, 3.f}}, {{2, 7.f}}}));
  Csr loops{.rows = 2, .cols = 2, .rowptr = {0, 2, 3}, .col = {0, 1, 1}, .weight = {9, 2, 5}};
  EXPECT_EQ(remove_self_loops(loops), 2);
  EXPECT_EQ(rows_of(loops), (Rows{{{1, 2.f}}, {}}));
}

TEST(GraphText, WhatIsWrongIsNamedWithItsLine) {
  const auto expect = [](const std::string& wanted, const std::string& text) {
    const std::string error = support::error_of(
        [&] { is_matrix_market(text) ? parse_matrix_market(text, "file") : parse_edge_list(text, "file", false); });
    EXPECT_NE(error.find(wanted), std::string::npos) << error << "\nwanted: " << wanted;
  };
  const std::string head = "%%MatrixMarket matrix coordinate pattern general\n";
  expect("[file] has no edges", "# nothing\n");
  expect("line 2: target is not a number", "0 1\n5\n");
  expect("line 1: source is not a number from 0 to 1048575; got a b", "a b");
  expect("line 1: source is not a number", "-1 2");
  expect("line 1: target is not a number", "1 2.5");
  // Of a long line its beginning is quoted, in whole characters.
  const std::string nines(39, '9');
  expect("got " + nines + "\u00e9...", "1 " + nines + "\u00e9\u00e9\u00e9");
  expect("the weight is not a finite number; got " + nines + "\u00e9...;", "1 2 1\n3 4 " + nines + "\u00e9\u00e9\n");
  expect("line 1: source is not a number", "99999999999999999999 1");
  expect("line 1: source is not a number", "1048576 1");  // a text of ten bytes names no million nodes
  expect("is not a matrix of coordinates; got %%matrixmarket matrix array",
         "%%MatrixMarket matrix array real general\n");
  expect("is not a matrix of coordinates", "%%MatrixMarket matrix coordinate real hermitian\n");
  for (const char* field : {"complex", "double", "general", ""})
    expect("expected %%MatrixMarket matrix coordinate pattern|real|integer general|symmetric",
           std::string("%%MatrixMarket matrix coordinate ") + field + " general\n2 2 1\n1 2 3 4\n");
  expect("has no sizes", head);
  expect("line 2: the matrix is not square; got 3 x 4", head + "3 4 1\n1 1\n");
  expect("line 2: rows is not a number", head + "2147483647 2147483647 1\n1 1\n");
  expect("line 2: entries is not a number", head + "3 3 99999999\n1 1\n");
  expect("ends early; got 1 entries; expected 2", head + "3 3 2\n1 1\n");
  expect("line 3: column is not a number from 1 to 3; got 4", head + "3 3 1\n1 4\n");
  expect("line 4: goes on after the last entry", head + "3 3 1\n1 2\n1 3\n");
}

TEST(Generate, DegreesAreWhatTheModelsSay) {
  const RowStats grid = stats_of(grid_graph(5, 4)), rmat = stats_of(rmat_graph(10, 8, 1)),
                 uniform = stats_of(uniform_graph(1000, 5000, 1));
  EXPECT_EQ(grid.edges, 2 * (4 * 4 + 3 * 5));
  EXPECT_EQ(grid.most, 4);
  EXPECT_NEAR(uniform.mean, 10, 0.5);
  EXPECT_LT(uniform.deviation / uniform.mean, 0.5);
  EXPECT_GT(rmat.deviation / rmat.mean, 1.5);  // heavy tails,
  EXPECT_GT(rmat.empty, rmat.rows / 10);       // and nodes without an edge
  EXPECT_EQ(fingerprint(rmat_graph(10, 8, 1)), fingerprint(rmat_graph(10, 8, 1)));
  EXPECT_NE(fingerprint(rmat_graph(10, 8, 1)), fingerprint(rmat_graph(10, 8, 2)));
  for (const Csr& csr : {grid_graph(5, 4), rmat_graph(8, 4, 3), uniform_graph(50, 200, 3)}) {
    check(csr, "generated");
    const Graph g = make_graph(csr);
    EXPECT_EQ(g.in.rowptr, g.out.rowptr);  // undirected
    EXPECT_EQ(g.in.col, g.out.col);
  }
}

TEST(Generate, MeshesBandsStarsAndRoads) {
  const Csr stencil = stencil_graph(4), band = band_graph(9, 2), road = road_graph(2000, 1), star = star_graph(10);
  for (const Csr& csr :
       {stencil, band, road, star, stencil_graph(1), band_graph(1, 4), road_graph(1, 1), star_graph(1)}) {
    check(csr, "generated");
    const Graph g = make_graph(csr);
    EXPECT_EQ(g.in.rowptr, g.out.rowptr);  // undirected
    EXPECT_EQ(g.in.col, g.out.col);
    for (int64_t i = 0; i < csr.rows; ++i)
      EXPECT_FALSE(
          std::binary_search(&csr.col[0] + csr.rowptr[size_t(i)], &csr.col[0] + csr.rowptr[size_t(i) + 1], int32_t(i)));
  }
  std::map<int64_t, int64_t> degrees;  // of a cube: corners, edges, faces, inside
  for (int64_t i = 0; i < 64; ++i) ++degrees[stencil.degree(i)];
  EXPECT_EQ(degrees, (std::map<int64_t, int64_t>{{7, 8}, {11, 24}, {17, 24}, {26, 8}}));
  EXPECT_EQ(band.edges(), 2 * (8 + 7));
  EXPECT_EQ(star.degree(0), 5);
  EXPECT_EQ(stats_of(star).empty, 4);
  EXPECT_NEAR(stats_of(road).mean, 2.1, 0.01);
}

// Means and spreads are those that were asked for, less what hubs lose to repetitions.
TEST(Generate, PowerLawsHaveTheirMeanAndSpread) {
  for (const double degree : {2.0, 8.0, 32.0}) {
    for (const double spread : {0.0, 0.3, 1.0, 2.0, 4.0}) {
      if (degree * spread > 100) continue;  // the hubs would have more edges than there are nodes
      const RowStats s = stats_of(power_law_graph({.nodes = 1 << 14, .degree = degree, .spread = spread, .seed = 3}));
      EXPECT_NEAR(s.mean, degree, 0.12 * degree) << degree << " " << spread;
      EXPECT_NEAR(s.spread, spread, 0.15 * spread + 0.05) << degree << " " << spread;
    }
  }
  EXPECT_EQ(power_law_graph({.nodes = 5, .degree = 0}).edges(), 0);
  const BlockModel model{.nodes = 4000, .spread = 2, .seed = 1};
  EXPECT_GT(stats_of(block_model(model).graph.in).spread, 1.5);
}

TEST(Generate, ThreadsChangeNoBit) {
  const auto same = [](auto&& make) {
    const auto one = make(1);
    for (const int threads : {2, 3}) {
      const auto other = make(threads);
      if constexpr (requires { one.col; }) {
        EXPECT_EQ(one.rowptr, other.rowptr);
        EXPECT_EQ(one.col, other.col);
      } else {
        EXPECT_EQ(one.graph.in.col, other.graph.in.col);
        EXPECT_EQ(one.x, other.x);
        EXPECT_EQ(one.y, other.y);
      }
    }
  };
  same([](int threads) { return rmat_graph(12, 8, 1, threads); });
  same([](int threads) { return uniform_graph(5000, 20000, 1, threads); });
  same([](int threads) { return power_law_graph({.nodes = 5000, .seed = 1}, threads); });
  same([](int threads) { return road_graph(30000, 1, threads); });
  same([](int threads) { return block_model({.nodes = 3000, .seed = 1}, threads); });
  same([](int threads) { return block_model({.nodes = 3000, .spread = 1, .seed = 1}, threads); });
}

TEST(Generate, EdgesOfABlockModelStayInTheirClasses) {
  const GraphData data = block_model({.nodes = 2000, .classes = 4, .homophily = 0.8, .seed = 1});
  double inside = 0;
  for (int64_t i = 0; i < data.nodes(); ++i) {
    for (int64_t e = data.graph.in.rowptr[static_cast<size_t>(i)]; e < data.graph.in.rowptr[static_cast<size_t>(i) + 1];
         ++e)
      inside += data.y[static_cast<size_t>(i)] == data.y[static_cast<size_t>(data.graph.in.col[static_cast<size_t>(e)])]
                    ? 1
                    : 0;
  }
  EXPECT_NEAR(inside / static_cast<double>(data.graph.edges()), 0.8 + 0.2 / 4, 0.02);
}

// Every row has as many edges as it may, all of them edges of the graph, and nodes keep their draws in another batch.
TEST(Sample, DrawsEdgesOfTheGraph) {
  const Csr in = rmat_graph(9, 8, 1);
  std::vector<int32_t> seeds;
  for (int32_t i = 0; i < 40; ++i) seeds.push_back(7 * i);
  const Sample sample = sample_neighbours(in, seeds, 2, 5, {.seed = 1, .step = 3});
  ASSERT_EQ(sample.blocks.size(), 2u);
  EXPECT_EQ(sample.blocks[1].rows(), 40);
  EXPECT_EQ(sample.blocks[0].rows(), sample.blocks[1].cols());
  EXPECT_EQ(sample.blocks[0].cols(), std::ssize(sample.nodes));
  EXPECT_EQ(std::set<int32_t>(sample.nodes.begin(), sample.nodes.end()).size(), sample.nodes.size());
  const auto edges_of = [&](const Sample& s, const Graph& block, int64_t row) {
    std::set<int32_t> nodes;
    for (int64_t e = block.in.rowptr[static_cast<size_t>(row)]; e < block.in.rowptr[static_cast<size_t>(row) + 1]; ++e)
      nodes.insert(s.nodes[static_cast<size_t>(block.in.col[static_cast<size_t>(e)])]);
    return nodes;
  };
  for (const Graph& block : sample.blocks) {
    check(block.in, "block");
    for (int64_t i = 0; i < block.rows(); ++i) {
      const int32_t node = sample.nodes[static_cast<size_t>(i)];
      EXPECT_EQ(block.in.degree(i), std::min<int64_t>(5, in.degree(node)));
      const auto* begin = &in.col[static_cast<size_t>(in.rowptr[static_cast<size_t>(node)])];
      for (const int32_t j : edges_of(sample, block, i))
        EXPECT_TRUE(std::binary_search(begin, begin + in.degree(node), j));
      EXPECT_EQ(std::ssize(edges_of(sample, block, i)), block.in.degree(i));  // none twice
    }
  }
  std::reverse(seeds.begin(), seeds.end());
  const Sample other = sample_neighbours(in, seeds, 2, 5, {.seed = 1, .step = 3}),
               later = sample_neighbours(in, seeds, 2, 5, {.seed = 1, .step = 4});
  int64_t changed = 0;
  for (int64_t i = 0; i < 40; ++i) {
    EXPECT_EQ(edges_of(sample, sample.blocks[1], i), edges_of(other, other.blocks[1], 39 - i));
    changed += edges_of(later, later.blocks[1], i) != edges_of(other, other.blocks[1], i) ? 1 : 0;
  }
  EXPECT_GT(changed, 10);
  // Layers draw for themselves: receivers of the last are the first of the one before it.
  int64_t others = 0;
  for (int64_t i = 0; i < 40; ++i)
    others += edges_of(sample, sample.blocks[0], i) != edges_of(sample, sample.blocks[1], i) ? 1 : 0;
  EXPECT_GT(others, 10);
}

}  // namespace
}  // namespace braid::graph
