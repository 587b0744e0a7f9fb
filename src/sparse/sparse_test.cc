// Choices: a tree that can be checked by hand, packs and plans that change no bit, files that say anything.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "core/op.h"
#include "graph/generate.h"
#include "graph/graph.h"
#include "sparse/choices.h"
#include "sparse/condense.h"
#include "sparse/plan.h"
#include "sparse/problem.h"
#include "sparse/race.h"
#include "sparse/samples.h"
#include "sparse/shares.h"
#include "sparse/tree.h"
#include "support/folder.h"
#include "sys/read.h"

namespace braid::sparse {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Of width w: way 4 is best up to 8, way 1 beyond, by a factor of two.
std::vector<Sample> two_regimes() {
  std::vector<Sample> samples;
  for (const char* graph : {"a", "b", "c", "d", "e"}) {
    for (const double width : {1, 2, 4, 8, 16, 32, 64}) {
      Sample s{.graph = graph, .features = {.mean = 5, .width = width}};
      s.seconds = {2, 1, 2, 2, 2, 2};
      if (width <= 8) s.seconds = {2, 2, 2, 2, 1, 2};
      if (width > 8) s.seconds[4] = s.seconds[5] = kNever;
      samples.push_back(s);
    }
  }
  return samples;
}

TEST(Tree, FindsTheLimitBetweenTwoRegimes) {
  const std::vector<Sample> samples = two_regimes();
  const std::vector<Node> tree = grow(samples);
  ASSERT_EQ(tree.size(), 3U);
  EXPECT_STREQ(kFeatures[tree[0].feature].name, "width");
  EXPECT_GT(tree[0].limit, 8);
  EXPECT_LT(tree[0].limit, 16);
  for (const Sample& s : samples) EXPECT_EQ(decide(tree, s.features), s.best());
  const Regret held_out = regret_of(samples, leave_one_graph_out(samples));
  EXPECT_EQ(held_out.worst, 0);
  EXPECT_EQ(held_out.of_best, 1);
}

// One way is best only where rows are long and wide: neither condition alone gains anything.
TEST(Tree, VotesFindTwoConditionsOfWhichOneGainsNothing) {
  std::vector<Sample> samples;
  for (int i = 0; i < 48; ++i) {
    const bool is_long = i % 2 == 1, wide = i % 4 >= 2;
    Sample s{.graph = "same", .features = {.mean = is_long ? 100.0 : 1.0, .width = wide ? 64.0 : 1.0}};
    s.seconds = {1, 2, 9, 9, 9, 9};
    if (is_long && wide) s.seconds = {2, 1, 9, 9, 9, 9};
    samples.push_back(s);
  }
  EXPECT_EQ(grow(samples, Splits::costs).size(), 1U);
  const std::vector<Node> tree = grow(samples, Splits::votes);
  EXPECT_EQ(tree.size(), 5U);
  for (const Sample& s : samples) EXPECT_EQ(decide(tree, s.features), s.best());
}

// What a graph's own times say is not known when its way is chosen.
TEST(Tree, AGraphIsDecidedByTheOthers) {
  std::vector<Sample> samples;
  for (const char* graph : {"a", "b"}) {
    for (const double width : {1, 4, 16}) {
      Sample s{.graph = graph, .features = {.mean = graph[0] == 'a' ? 1.0 : 100.0, .width = width}};
      s.seconds = {1, 3, 9, 9, 9, 9};
      if (graph[0] == 'b') s.seconds = {3, 1, 9, 9, 9, 9};
      samples.push_back(s);
    }
  }
  const Regret all = regret_of(samples, leave_one_graph_out(samples));
  EXPECT_NEAR(all.mean, 2, 1e-12);
  EXPECT_NEAR(all.worst, 2, 1e-12);
}

// The way that is best most often is not the one of least regret.
TEST(Tree, PrefersLittleRegretToManyHits) {
  std::vector<Sample> samples;
  for (int i = 0; i < 4; ++i) {
    Sample s{.graph = "same"};
    s.seconds = {1, 1.05, 9, 9, 9, 9};
    if (i == 3) s.seconds = {3, 1, 9, 9, 9, 9};
    samples.push_back(s);
  }
  const std::vector<Node> tree = grow(samples);
  ASSERT_EQ(tree.size(), 1U);
  EXPECT_EQ(tree[0].way, 1);
  const Regret r = regret_of(samples, {1, 1, 1, 1});
  EXPECT_NEAR(r.mean, 0.75 * 0.05, 1e-12);
  EXPECT_NEAR(r.worst, 0.05, 1e-12);
}

TEST(Tree, TheBuiltInOneNamesPossibleWays) {
  for (const Node& n : built_in_tree()) {
    if (n.feature < 0) {
      ASSERT_LT(n.way, kWays);
      EXPECT_FALSE(ways()[static_cast<size_t>(n.way)].packed);  // decide() is for graphs that are used once
    } else {
      EXPECT_LT(n.feature, static_cast<int>(std::size(kFeatures)));
      EXPECT_LT(std::max(n.below, n.above), std::ssize(built_in_tree()));
    }
  }
}

// Once a problem has tiles, its ways still run row by row, with the bits of their class.
TEST(Problem, WaysAreNotTiles) {
  if (!spmm_tiles_here()) GTEST_SKIP() << "no BF16 tiles on this CPU";
  const graph::Csr csr = graph::band_graph(500, 8);
  Problem problem(csr, 64, {.features = DType::bf16});
  const auto bytes_of = [&](const std::function<void()>& run) {
    run();
    const View y = problem.y().view();
    return std::vector<std::byte>(y.data, y.data + y.bytes());
  };
  const std::vector<std::byte> before = bytes_of(problem.run(ways()[0]));
  EXPECT_NE(bytes_of(problem.run("tiles")), before);
  EXPECT_EQ(bytes_of(problem.run(ways()[0])), before);
}

TEST(Condense, CountsTheTilesOfWindowsOfSixteenRows) {
  // 16 rows that share 8 sources: one full tile. Then a row of 9 sources: two.
  std::vector<graph::Edge> edges;
  for (int32_t i = 0; i < 16; ++i) {
    for (int32_t j = 0; j < 8; ++j) edges.push_back({20 + j, i});
  }
  const Condensed full = condensed(graph::csr_of(32, edges));
  EXPECT_EQ(full.tiles, 1);
  EXPECT_EQ(full.density, 1);
  EXPECT_EQ(full.reuse, 16);
  EXPECT_GE(full.reuse, Condensed::kLeastReuse);
  edges.clear();
  for (int32_t j = 0; j < 9; ++j) edges.push_back({j, 20});
  const Condensed thin = condensed(graph::csr_of(32, edges));
  EXPECT_EQ(thin.tiles, 2);
  EXPECT_LT(thin.reuse, Condensed::kLeastReuse);
  EXPECT_EQ(condensed(graph::csr_of(5, {})).tiles, 0);
}

TEST(Race, EveryRunRunsInEveryRound) {
  int a = 0, b = 0;
  const auto seconds = race({[&] { ++a; }, [&] { ++b; }}, 5, 0);
  ASSERT_EQ(seconds.size(), 2U);
  EXPECT_EQ(seconds[0].size(), 5U);
  EXPECT_EQ(a, 2 * 6);  // one of two is not timed
  EXPECT_EQ(b, 2 * 6);
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median_ratio({2, 9, 4}, {1, 3, 1}), 3);
}

// Caches of this test alone.
class CacheFolder {
 public:
  CacheFolder() { setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1); }
  ~CacheFolder() { unsetenv("XDG_CACHE_HOME"); }
  std::filesystem::path file() const { return folder_.path() / "braid" / "spmm.json"; }

 private:
  const support::Folder folder_;
};

TEST(Choices, AreKeptAndForeignFilesAreIgnored) {
  const CacheFolder folder;
  EXPECT_EQ(remembered("key"), nullptr);
  remember("key", ways()[4]);
  remember("other", ways()[1]);
  ASSERT_NE(remembered("key"), nullptr);
  EXPECT_STREQ(remembered("key")->name, ways()[4].name);
  const std::string deep(1000, '['), long_name = "{\"" + std::string(1 << 20, 'a') + "\": {}}";
  for (const std::string& text : {std::string(), std::string("[1]"), std::string("{\"a\": 1}"), std::string("{"),
                                  std::string("null"), deep, long_name}) {
    std::ofstream(folder.file()) << text;
    EXPECT_EQ(remembered("key"), nullptr) << text;
    remember("key", ways()[2]);
    ASSERT_NE(remembered("key"), nullptr) << text;
  }
  std::string damaged = sys::read_file(folder.file());
  damaged.replace(damaged.find(ways()[2].name), 2, "xx");
  std::ofstream(folder.file()) << damaged;
  EXPECT_EQ(remembered("key"), nullptr);
}

// A build with other ways measures anew.
TEST(Choices, AreOfATableOfWays) {
  std::vector<Way> table(ways().begin(), ways().end());
  const uint64_t mark = mark_of(table);
  EXPECT_EQ(mark_of(ways()), mark);
  std::swap(table[0].name, table[1].name);
  EXPECT_NE(mark_of(table), mark);
  table.assign(ways().begin(), ways().end() - 1);
  EXPECT_NE(mark_of(table), mark);
}

// All calls of a plan, those that measure, those after and those of the next run, have the bits of the plain way.
TEST(Plan, ChangesNoBitAndRemembersLargeGraphs) {
  const CacheFolder folder;
  for (const bool large : {false, true}) {
    const graph::Csr csr = large ? graph::uniform_graph(4096, 80000, 3) : graph::rmat_graph(7, 8, 3);
    for (const int64_t width : {1, 6, 24}) {
      Problem problem(csr, width);
      problem.run(ways()[0])();
      const auto bytes = static_cast<size_t>(problem.y().view().bytes());
      std::vector<std::byte> want(problem.y().view().data, problem.y().view().data + bytes);
      const SpmmFwd call{.rowptr = csr.rowptr_view(),
                         .col = csr.col_view(),
                         .x = problem.x().view(),
                         .edge = problem.edge().view(),
                         .y = problem.y().mut(),
                         .op = EdgeOp::mul};
      Arena arena;
      Ctx ctx{.arena = arena, .poison = true};
      for (const Use use : {Use::often, Use::once, Use::often}) {
        Plan plan(csr, use);
        for (int i = 0; i < 3 * kWays; ++i) {
          plan.run(ctx, call, true);
          ASSERT_EQ(std::memcmp(problem.y().view().data, want.data(), bytes), 0) << i << ", width " << width;
        }
      }
    }
    EXPECT_EQ(std::filesystem::exists(folder.file()), large);
  }
}

// A clock by which the calls that measure take 9, 8, 1, 7, 6, 5 seconds, one way after the other.
double scripted_seconds() {
  static constexpr double kTook[kWays] = {9, 8, 1, 7, 6, 5};
  static int reads = 0;
  static double now = 0;
  if (reads % 2 == 1) now += kTook[reads / 2 % kWays];
  ++reads;
  return now;
}

TEST(Plan, TakesTheFastestWayAndKeepsItByThreadsAndReduction) {
  const CacheFolder folder;
  const graph::Csr csr = graph::uniform_graph(4096, 140000, 3);
  Problem problem(csr, 24);
  SpmmFwd call{.rowptr = csr.rowptr_view(), .col = csr.col_view(), .x = problem.x().view(), .y = problem.y().mut()};
  Arena arena;
  Ctx ctx{.arena = arena, .threads = 1};
  Plan plan(csr, Use::often, scripted_seconds);
  for (int i = 0; i < 2 * kWays; ++i) plan.run(ctx, call, true);
  const auto times_in_file = [&](const std::string& text) {
    const std::string all = sys::read_file(folder.file());
    int n = 0;
    for (size_t at = all.find(text); at != std::string::npos; at = all.find(text, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(times_in_file(ways()[2].name), 1);
  EXPECT_EQ(times_in_file(" 1 threads"), 1);
  EXPECT_EQ(plan.choice(ctx, call, true), &ways()[2]);
  // The next run starts with it.
  const auto unexpected = +[] {
    ADD_FAILURE() << "measured again";
    return 0.0;
  };
  Plan again(csr, Use::often, unexpected);
  EXPECT_EQ(again.choice(ctx, call, true), &ways()[2]);
  again.run(ctx, call, true);
  ctx.threads = 2;
  for (int i = 0; i < 2 * kWays; ++i) plan.run(ctx, call, true);
  call.reduce = Reduce::max;
  for (int i = 0; i < 2 * kWays; ++i) plan.run(ctx, call, true);
  EXPECT_EQ(times_in_file(" 2 threads"), 2);
}

// Of graphs that are used once the tree decides, which does not always say the first way.
TEST(Plan, GraphsThatAreUsedOnceTakeTheTreesChoice) {
  int others = 0;
  for (const graph::Csr& csr :
       {graph::uniform_graph(3000, 30000, 3), graph::grid_graph(40, 40), graph::rmat_graph(11, 16, 3)}) {
    for (const int64_t width : {1, 4, 16, 64, 256}) {
      Problem problem(csr, width);
      const SpmmFwd call{
          .rowptr = csr.rowptr_view(), .col = csr.col_view(), .x = problem.x().view(), .y = problem.y().mut()};
      Arena arena;
      const Ctx ctx{.arena = arena};
      const int way = decide(built_in_tree(), features_of(graph::stats_of(csr), csr.cols, width, sizeof(float)));
      EXPECT_EQ(Plan(csr, Use::once).choice(ctx, call, true), &ways()[static_cast<size_t>(way)]) << "width " << width;
      others += way != 0 ? 1 : 0;
    }
  }
  EXPECT_GT(others, 0);
}

// Values that change between calls are never read from a pack.
TEST(Plan, ReadsValuesThatChange) {
  const graph::Csr csr = graph::uniform_graph(64, 300, 1);
  Problem problem(csr, 1);
  SpmmFwd call{.rowptr = csr.rowptr_view(),
               .col = csr.col_view(),
               .x = problem.x().view(),
               .edge = problem.edge().view(),
               .y = problem.y().mut(),
               .op = EdgeOp::mul};
  Arena arena;
  Ctx ctx{.arena = arena};
  Plan plan(csr, Use::often);
  auto* values = problem.edge().mut().as<float>();
  for (int i = 0; i < 3 * kWays; ++i) {
    std::fill(values, values + csr.edges(), static_cast<float>(i));
    plan.run(ctx, call, false);
    double want = 0;
    for (int64_t e = csr.rowptr[5]; e < csr.rowptr[6]; ++e)
      want += i * static_cast<double>(problem.x().view().as<float>()[csr.col[static_cast<size_t>(e)]]);
    EXPECT_NEAR(problem.y().view().as<float>()[5], want, 1e-4 * (i + 1));
  }
}

// Every edge is in one share, by its row; by edges shares are as large as they can be equal, hubs cut.
TEST(Shares, HaveEveryEdgeOnce) {
  for (const graph::Csr& csr :
       {graph::star_graph(100), graph::rmat_graph(8, 4, 1), graph::Csr{.rows = 3, .cols = 3, .rowptr = {0, 0, 0, 0}}}) {
    for (const Balance balance : {Balance::rows, Balance::edges}) {
      for (const int64_t count : {1, 3, 7}) {
        std::vector<int32_t> col;
        int64_t rows = 0, most = 0;
        for (const graph::Csr& share : shares_of(csr, count, balance)) {
          graph::check(share, "share");
          col.insert(col.end(), share.col.begin(), share.col.end());
          rows += share.rows;
          most = std::max(most, share.edges());
        }
        EXPECT_EQ(col, csr.col);
        if (balance == Balance::rows) {
          EXPECT_EQ(rows, csr.rows);
        } else {
          EXPECT_LE(most, csr.edges() / count + 1);
        }
      }
    }
  }
  // A hub of 50 of 100 edges in four shares by edges: two have nothing else.
  const auto shares = shares_of(graph::star_graph(100), 4, Balance::edges);
  EXPECT_EQ(shares[0].edges(), 25);
  EXPECT_EQ(shares[0].degree(0), 25);
  EXPECT_EQ(shares[1].degree(0), 25);
}

TEST(Samples, HaveATimeForEveryWayWithoutAPack) {
  std::vector<Sample> samples;
  measure("g", graph::grid_graph(8, 8), {4, 16}, 1, samples);
  ASSERT_EQ(samples.size(), 2U);
  for (const Sample& s : samples) {
    for (size_t way = 0; way < kWays; ++way) EXPECT_EQ(std::isfinite(s.seconds[way]), !ways()[way].packed);
  }
  const std::string csv = csv_of(samples);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 3);
}

}  // namespace
}  // namespace braid::sparse
