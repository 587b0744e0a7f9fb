// The product with a graph's matrix at the widths of graph networks: heavy-tailed degrees (R-MAT, as Graph500 draws
// them), uniform ones, and a mesh. One thread: how well a row is summed, not how rows are shared.
#include "kernels/spmm/spmm.h"

#include <algorithm>

#include "core/op_bench.h"

namespace braid {
namespace {

struct BenchGraph {
  int64_t nodes = 0;
  std::vector<int64_t> rowptr{};
  std::vector<int32_t> col{};
};

// `kind` 0: R-MAT without its permutation, 1: uniform, 2: a mesh of four neighbours. About `factor` edges per node.
BenchGraph bench_graph(int64_t kind, int scale, int64_t factor) {
  const int64_t nodes = int64_t{1} << scale, side = int64_t{1} << scale / 2;
  std::vector<std::pair<int32_t, int32_t>> edges;
  for (int64_t e = 0; e < nodes * (kind == 2 ? 4 : factor); ++e) {
    int64_t i = 0, j = 0;
    if (kind == 2) {
      constexpr int64_t kSteps[4][2] = {{0, 1}, {1, 0}, {0, -1}, {-1, 0}};
      i = e / 4;
      const int64_t x = i % side + kSteps[e % 4][0], y = i / side + kSteps[e % 4][1];
      if (x < 0 || y < 0 || x >= side || y >= nodes / side) continue;
      j = y * side + x;
    } else if (kind == 1) {
      const auto r = philox({.seed = 1}, static_cast<uint64_t>(e));
      i = r[0] % nodes, j = r[1] % nodes;
    } else {
      for (int bit = 0; bit < scale; ++bit) {
        const float u = uniform(philox({.seed = 1}, static_cast<uint64_t>(e), static_cast<uint32_t>(bit))[0]);
        i = 2 * i + (u >= 0.76f ? 1 : 0);
        j = 2 * j + ((u >= 0.57f && u < 0.76f) || u >= 0.95f ? 1 : 0);
      }
    }
    edges.emplace_back(static_cast<int32_t>(i), static_cast<int32_t>(j));
  }
  std::sort(edges.begin(), edges.end());
  BenchGraph g{.nodes = nodes};
  g.rowptr.assign(static_cast<size_t>(nodes) + 1, 0);
  for (const auto& [i, j] : edges) ++g.rowptr[static_cast<size_t>(i) + 1], g.col.push_back(j);
  for (size_t i = 1; i < g.rowptr.size(); ++i) g.rowptr[i] += g.rowptr[i - 1];
  return g;
}

void spmm(benchmark::State& state) {
  const BenchGraph g = bench_graph(state.range(0), 16, 28);
  const int64_t edges = std::ssize(g.col);
  Arena arena;
  Ctx ctx{.arena = arena, .threads = 1};
  const Tensor x = bench_tensor(arena, DType::f32, {g.nodes, state.range(1)}),
               edge = bench_tensor(arena, DType::f32, {edges, 1}), y(arena, DType::f32, x.shape());
  bench_op(state, ctx,
           SpmmFwd{.rowptr = view_of(g.rowptr.data(), {g.nodes + 1}),
                   .col = view_of(g.col.data(), {edges}),
                   .x = x.view(),
                   .edge = edge.view(),
                   .y = y.mut(),
                   .op = EdgeOp::mul});
}
BENCHMARK(spmm)->ArgNames({"graph", "width"})->ArgsProduct({{0, 1, 2}, {1, 4, 16, 64, 128, 256}});

}  // namespace
}  // namespace braid
