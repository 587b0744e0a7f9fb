// Graphs for tests of GPU rows: nodes without edges at both ends and in long runs between, hubs, rows of one edge.
#pragma once
#include <algorithm>

#include "cuda_fixture.h"

namespace braid {

class CudaGraphTest : public CudaTest {
 protected:
  struct TestGraph {
    std::vector<int64_t> rowptr = {0}, out_rowptr;
    std::vector<int32_t> col, out_col;  // out_col: of the transpose

    int64_t rows() const { return std::ssize(rowptr) - 1; }
    int64_t sources() const { return std::ssize(out_rowptr) - 1; }
    int64_t edges() const { return std::ssize(col); }
  };

  // Every row named in `hubs` has that many edges, others up to `most`, half of them none. Sources may repeat; the last
  // two have no edges, and a third of all edges come from source 1.
  TestGraph graph(int64_t rows, int64_t sources, int64_t most, const std::vector<std::pair<int64_t, int64_t>>& hubs) {
    TestGraph g;
    const auto draw = [&](int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(numbers_); };
    for (int64_t i = 0; i < rows; ++i) {
      int64_t degree = i == 0 || i == rows - 1 || draw(2) == 0 ? 0 : draw(most + 1);
      for (const auto& [row, edges] : hubs) degree = row == i ? edges : degree;
      for (int64_t e = 0; e < degree; ++e)
        g.col.push_back(static_cast<int32_t>(sources > 3 ? (draw(3) == 0 ? 1 : draw(sources - 2)) : draw(sources)));
      g.rowptr.push_back(g.edges());
    }
    g.out_rowptr.assign(static_cast<size_t>(sources) + 1, 0);
    for (const int32_t j : g.col) ++g.out_rowptr[static_cast<size_t>(j) + 1];
    for (size_t j = 1; j < g.out_rowptr.size(); ++j) g.out_rowptr[j] += g.out_rowptr[j - 1];
    std::vector<int64_t> at(g.out_rowptr.begin(), g.out_rowptr.end() - 1);
    g.out_col.resize(g.col.size());
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t e = g.rowptr[static_cast<size_t>(i)]; e < g.rowptr[static_cast<size_t>(i) + 1]; ++e)
        g.out_col[static_cast<size_t>(at[static_cast<size_t>(g.col[static_cast<size_t>(e)])]++)] =
            static_cast<int32_t>(i);
    }
    return g;
  }

  static View list(const std::vector<int64_t>& v) { return view_of(v.data(), {std::ssize(v)}); }
  static View list(const std::vector<int32_t>& v) { return view_of(v.data(), {std::ssize(v)}); }

  // Whole numbers from -most to most: their sums and products are exact in FP32, whatever their order.
  Tensor whole(DType dtype, const Shape& shape, int most = 3) {
    Tensor t(arena_, dtype, shape);
    std::vector<double> values(static_cast<size_t>(shape.count()));
    for (double& v : values) v = std::uniform_int_distribution<int>(-most, most)(numbers_);
    store(t.mut(), values);
    return t;
  }
  // Where whole numbers make it exact.
  void same(const View& got, const View& want) { EXPECT_EQ(back(got), to_doubles(want)); }
};

}  // namespace braid
