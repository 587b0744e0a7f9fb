// Blocks of a graph: together they have its edges, once each, and a random order of the nodes makes them alike.
#include "graph/grid_cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "graph/generate.h"
#include "graph/graph.h"

namespace braid::graph {
namespace {

using Edges = std::vector<std::pair<int64_t, int64_t>>;

TEST(GridCut, BlocksHaveTheEdgesOfTheGraph) {
  const Csr csr = rmat_graph(7, 6, 5);
  const std::vector<int32_t> order = random_order(csr.rows, 9);
  Edges want, got;
  for (int64_t i = 0; i < csr.rows; ++i) {
    for (int64_t e = csr.rowptr[static_cast<size_t>(i)]; e < csr.rowptr[static_cast<size_t>(i) + 1]; ++e)
      want.emplace_back(i, csr.col[static_cast<size_t>(e)]);
  }
  constexpr int64_t kRows = 3, kCols = 5;
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kCols; ++c) {
      const Range rows = share_of(csr.rows, r, kRows), cols = share_of(csr.cols, c, kCols);
      const Csr block = block_of(csr, order, rows, cols);
      check(block, "block");
      for (int64_t i = 0; i < block.rows; ++i) {
        for (int64_t e = block.rowptr[static_cast<size_t>(i)]; e < block.rowptr[static_cast<size_t>(i) + 1]; ++e)
          got.emplace_back(order[static_cast<size_t>(rows.begin + i)],
                           order[static_cast<size_t>(cols.begin + block.col[static_cast<size_t>(e)])]);
      }
    }
  }
  std::sort(got.begin(), got.end());
  std::sort(want.begin(), want.end());
  EXPECT_EQ(got, want);
}

TEST(GridCut, AnOrderHasEveryNodeOnce) {
  const std::vector<int32_t> order = random_order(1000, 1), positions = positions_of(order);
  EXPECT_NE(order, random_order(1000, 2));
  EXPECT_EQ(order, random_order(1000, 1));
  std::vector<int32_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (int32_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(sorted[static_cast<size_t>(i)], i);
    ASSERT_EQ(positions[static_cast<size_t>(order[static_cast<size_t>(i)])], i);
  }
}

// The nodes of a road network, or of a grid, are numbered along it: of 8 x 8 blocks those on the diagonal have all the
// edges. One permutation spreads them, but for self-loops, which no permutation takes off the diagonal.
TEST(GridCut, APermutationEvensOutBlocks) {
  const Csr csr = grid_graph(300, 300);
  const std::vector<int32_t> positions = positions_of(random_order(csr.rows, 3));
  EXPECT_GT(imbalance(csr, {}, 8, 8), 7.5);
  EXPECT_LT(imbalance(csr, positions, 8, 8), 1.06);
  Csr loops{.rows = csr.rows, .cols = csr.cols};
  for (int64_t i = 0; i < csr.rows; ++i) {
    for (int64_t e = csr.rowptr[static_cast<size_t>(i)]; e < csr.rowptr[static_cast<size_t>(i) + 1]; ++e)
      loops.col.push_back(csr.col[static_cast<size_t>(e)]);
    loops.col.push_back(static_cast<int32_t>(i));
    loops.rowptr.push_back(std::ssize(loops.col));
  }
  EXPECT_GT(imbalance(loops, positions, 8, 8), 2);
  // By hand: edges (0, 1), (1, 0), (2, 3) of four nodes in 2 x 2 blocks.
  const Csr few = csr_of(4, {{1, 0}, {0, 1}, {3, 2}});
  EXPECT_DOUBLE_EQ(imbalance(few, {}, 2, 2), 2 / (3.0 / 4));
  EXPECT_DOUBLE_EQ(imbalance(csr_of(4, {}), {}, 2, 2), 1);
}

}  // namespace
}  // namespace braid::graph
