// Tolerances: a softmax and sums of up to two hundred FP32 terms against FP64, 1e-5 of the root mean square; gradients,
// which are differences of near values, 5e-5. BF16 outputs 1/64.
#include "kernels/gat/gat.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/op_sweep.h"
#include "core/ref.h"
#include "kernels/gat/gat_ref.h"

namespace braid {
namespace {

// Nodes 0 and the last have no edges in; one has 150, so that its chunks are several.
struct TestGraph {
  int64_t nodes;
  std::vector<int64_t> rowptr = {0}, out_rowptr;
  std::vector<int32_t> col, out_col, order;

  explicit TestGraph(int64_t n) : nodes(n), out_rowptr(static_cast<size_t>(n) + 1) {
    for (int64_t i = 0; i < n; ++i) {
      const int64_t degree = i == 0 || i == n - 1 ? 0
                             : i == 3             ? 150
                                                  : philox({.seed = 3}, static_cast<uint64_t>(i))[0] % 9;
      for (int64_t e = 0; e < degree; ++e) col.push_back(static_cast<int32_t>(philox({.seed = 4}, col.size())[0] % n));
      rowptr.push_back(std::ssize(col));
    }
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t e = rowptr[static_cast<size_t>(i)]; e < rowptr[static_cast<size_t>(i) + 1]; ++e) {
          if (col[static_cast<size_t>(e)] != j) continue;
          out_col.push_back(static_cast<int32_t>(i));
          order.push_back(static_cast<int32_t>(e));
        }
      }
      out_rowptr[static_cast<size_t>(j) + 1] = std::ssize(out_col);
    }
  }
};

View ids(const std::vector<int32_t>& list) { return view_of(list.data(), {std::ssize(list)}); }
View pointers(const std::vector<int64_t>& list) { return view_of(list.data(), {std::ssize(list)}); }

struct Problem {
  TestGraph graph;
  TestTensor x, left, right, y, top, sum, dy, dx, dleft, dright;
  AttentionDropout drop{};

  Problem(int64_t heads, int64_t part, DType x_type = DType::f32, DType y_type = DType::f32, int64_t nodes = 12)
      : graph(nodes),
        x(x_type, {nodes, heads * part}, 1),
        left(DType::f32, {nodes, heads}, 2),
        right(DType::f32, {nodes, heads}, 3, 2),
        y(y_type, {nodes, heads * part}, 4),
        top(DType::f32, {nodes, heads}, 5),
        sum(DType::f32, {nodes, heads}, 6),
        dy(DType::f32, {nodes, heads * part}, 7),
        dx(DType::f32, {nodes, heads * part}, 8),
        dleft(DType::f32, {nodes, heads}, 9),
        dright(DType::f32, {nodes, heads}, 10) {}
  GatFwd forward(bool loops) {
    return {.rowptr = pointers(graph.rowptr),
            .col = ids(graph.col),
            .x = x.view(),
            .left = left.view(),
            .right = right.view(),
            .y = y.mut(),
            .top = top.mut(),
            .sum = sum.mut(),
            .loops = loops,
            .drop = drop};
  }
  // After a forward call.
  GatBwd backward(bool loops) {
    return {.rowptr = pointers(graph.rowptr),
            .col = ids(graph.col),
            .out_rowptr = pointers(graph.out_rowptr),
            .out_col = ids(graph.out_col),
            .order = ids(graph.order),
            .x = x.view(),
            .left = left.view(),
            .right = right.view(),
            .top = top.view(),
            .sum = sum.view(),
            .y = y.view(),
            .dy = dy.view(),
            .dx = dx.mut(),
            .dleft = dleft.mut(),
            .dright = dright.mut(),
            .loops = loops,
            .drop = drop};
  }
};

TEST(Gat, EveryRowAgreesWithTheReference) {
  for (const bool loops : {true, false}) {
    for (const int64_t heads : {1, 4}) {
      for (const int64_t part : {1, 3, 5, 16, 40, 150}) {
        for (const DType type : {DType::f32, DType::bf16}) {
          for (const float rate : {0.0f, 0.3f}) {
            Problem p(heads, part, type, type);
            p.drop = {.rate = rate, .key = {.seed = 5, .stream = 6}, .step = 7};
            sweep(p.forward(loops), type == DType::bf16 ? 4e-2 : 1e-5);
            Arena arena;
            Ctx ctx{.arena = arena};
            run(ctx, p.forward(loops));
            sweep(p.backward(loops), 5e-5);
          }
        }
      }
    }
  }
}

// Large enough that threads share rows and sources: a team changes no bit.
TEST(Gat, LargeProblemsAreSharedByThreads) {
  Problem p(4, 24, DType::f32, DType::f32, 1500);
  p.drop = {.rate = 0.2f, .key = {.seed = 1}};
  ASSERT_EQ(sys::team_for(3, p.forward(true).flops()), 3);
  sweep(p.forward(true), 1e-5);
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, p.forward(true));
  sweep(p.backward(true), 5e-5);
}

// What a pass keeps is per node, not per edge: workspace, maxima and sums together are smaller than one value per edge
// and head.
TEST(Gat, StoresNothingPerEdge) {
  constexpr int64_t kHeads = 8;
  Problem p(kHeads, 2, DType::f32, DType::f32, 64);
  const int64_t edges = std::ssize(p.graph.col) + 64, per_edge = edges * kHeads * 4;
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, p.forward(true));
  run(ctx, p.backward(true));
  EXPECT_LT(arena.bytes_peak() + p.top.view().bytes() + p.sum.view().bytes(), per_edge);
}

TEST(GatScores, EveryRowAgreesWithTheReference) {
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const int64_t nodes : {1, 300, 9001}) {  // the last are shared by threads, in blocks of which one is short
      ASSERT_EQ(sys::team_for(3, 4.0 * 20 * static_cast<double>(nodes)), nodes == 9001 ? 3 : 1);
      TestTensor x(type, {nodes, 20}, 1), a_src(DType::f32, {20}, 2), a_dst(DType::f32, {20}, 3),
          right(DType::f32, {nodes, 4}, 4), left(DType::f32, {nodes, 4}, 5), dx(DType::f32, {nodes, 20}, 6),
          da_src(DType::f32, {20}, 7), da_dst(DType::f32, {20}, 8);
      sweep(
          GatScoresFwd{
              .x = x.view(), .a_src = a_src.view(), .a_dst = a_dst.view(), .right = right.mut(), .left = left.mut()},
          2e-6);
      sweep(GatScoresBwd{.dright = right.view(),
                         .dleft = left.view(),
                         .x = x.view(),
                         .a_src = a_src.view(),
                         .a_dst = a_dst.view(),
                         .dx = dx.mut(),
                         .da_src = da_src.mut(),
                         .da_dst = da_dst.mut()},
            5e-6);
    }
  }
}

// Gradients of L = sum(dy * y) by complex step on the forward reference, through scores and attention.
TEST(Gat, BackwardIsTheDerivative) {
  constexpr int64_t kHeads = 2, kPart = 3, kNodes = 12;
  for (const bool loops : {true, false}) {
    Problem p(kHeads, kPart);
    p.drop = {.rate = loops ? 0.4f : 0, .key = {.seed = 8}};
    Arena arena;
    Ctx ctx{.arena = arena, .forced_rows = {{"gat_fwd", "ref"}, {"gat_bwd", "ref"}}};
    run(ctx, p.forward(loops));
    run(ctx, p.backward(loops));
    std::vector<double> inputs = to_doubles(p.x.view());
    const size_t width = inputs.size(), scores = static_cast<size_t>(kNodes * kHeads);
    for (const TestTensor* t : {&p.left, &p.right}) {
      for (const double v : to_doubles(t->view())) inputs.push_back(v);
    }
    const std::vector<double> dy = to_doubles(p.dy.view());
    const auto gradient = complex_step(inputs, [&](const std::vector<std::complex<double>>& z) {
      const auto at = z.begin();
      const auto middle = static_cast<int64_t>(width), last = static_cast<int64_t>(width + scores);
      const GatRef<std::complex<double>> in{.x = {at, at + middle},
                                            .left = {at + middle, at + last},
                                            .right = {at + last, z.end()},
                                            .rows = kNodes,
                                            .width = kHeads * kPart,
                                            .heads = kHeads};
      std::vector<std::complex<double>> y(width), top(scores), sum(scores);
      gat_ref(p.forward(loops), in, y, top, sum);
      return std::inner_product(y.begin(), y.end(), dy.begin(), std::complex<double>(0));
    });
    const auto expect = [&](const TestTensor& t, size_t first, const char* what) {
      for (int64_t i = 0; i < t.view().count(); ++i)
        EXPECT_NEAR(element(t.view(), i), gradient[first + static_cast<size_t>(i)], 2e-5) << what << " " << i;
    };
    expect(p.dx, 0, "dx");
    expect(p.dleft, width, "dleft");
    expect(p.dright, width + scores, "dright");
  }
}

// With one-hot features the results are the weights themselves: each is 0 or 1 / (1 - rate) of what it is without
// dropout, about as often as the rate says, in each head and step anew.
TEST(Gat, DropoutTakesAShareOfTheWeights) {
  constexpr int64_t kNodes = 40, kHeads = 5;
  Problem p(kHeads, kNodes, DType::f32, DType::f32, kNodes);
  p.graph.rowptr.assign(1, 0);
  p.graph.col.clear();
  for (int32_t i = 0; i < kNodes; ++i) {
    for (int32_t j = 0; j < kNodes; ++j) {
      if (j != i) p.graph.col.push_back(j);
    }
    p.graph.rowptr.push_back(std::ssize(p.graph.col));
  }
  fill(p.x.mut(), 0);
  for (int64_t i = 0; i < kNodes; ++i) {
    for (int64_t h = 0; h < kHeads; ++h) set_element(p.x.mut(), (i * kHeads + h) * kNodes + i, 1);
  }
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, p.forward(true));
  const std::vector<double> whole = to_doubles(p.y.view());
  std::vector<std::vector<bool>> kept;
  for (const uint32_t step : {0u, 1u}) {
    p.drop = {.rate = 0.25f, .key = {.seed = 2}, .step = step};
    run(ctx, p.forward(true));
    for (int64_t h = 0; h < kHeads; ++h) {
      auto& list = kept.emplace_back();
      for (int64_t i = 0; i < kNodes; ++i) {
        for (int64_t j = 0; j < kNodes; ++j) {
          const int64_t at = (i * kHeads + h) * kNodes + j;
          const double got = element(p.y.view(), at), want = whole[static_cast<size_t>(at)] / 0.75;
          list.push_back(got != 0);
          EXPECT_NEAR(got, got == 0 ? 0 : want, 1e-5 * want) << i << " " << j << " " << h;
        }
      }
      EXPECT_NEAR(static_cast<double>(std::count(list.begin(), list.end(), true)), 0.75 * kNodes * kNodes, 70);
    }
  }
  for (size_t a = 0; a < kept.size(); ++a) {
    for (size_t b = a + 1; b < kept.size(); ++b) EXPECT_NE(kept[a], kept[b]) << a << " " << b;
  }
}

// A row of several chunks whose scores rise from edge to edge: what was summed so far shrinks with every chunk.
TEST(Gat, RisingScoresRescaleWhatWasSummed) {
  for (const int64_t part : {5, 16, 40}) {
    Problem p(1, part, DType::f32, DType::f32, 200);
    for (int64_t e = p.graph.rowptr[3]; e < p.graph.rowptr[4]; ++e)
      set_element(p.right.mut(), p.graph.col[static_cast<size_t>(e)], 0.05 * static_cast<double>(e));
    sweep(p.forward(false), 1e-5);
  }
}

// Scores far apart neither overflow nor divide by zero: one weight is 1.
TEST(Gat, ScoresFarApartChooseOneSource) {
  Problem p(1, 4);
  for (int64_t j = 0; j < 12; ++j) set_element(p.right.mut(), j, j == 5 ? 3e4 : 100.0 * static_cast<double>(j));
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, p.forward(true));
  for (int64_t i = 0; i < 12; ++i) {
    int64_t best = i;
    for (int64_t e = p.graph.rowptr[static_cast<size_t>(i)]; e < p.graph.rowptr[static_cast<size_t>(i) + 1]; ++e) {
      const int64_t j = p.graph.col[static_cast<size_t>(e)];
      if (element(p.right.view(), j) > element(p.right.view(), best)) best = j;
    }
    for (int64_t c = 0; c < 4; ++c)
      EXPECT_NEAR(element(p.y.view(), i * 4 + c), element(p.x.view(), best * 4 + c), 1e-5) << i;
  }
}

// Of every row that has the source, and of no other.
TEST(Gat, NanIsSeen) {
  Problem p(1, 4);
  constexpr int32_t kSource = 5;
  set_element(p.right.mut(), kSource, NAN);
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, p.forward(false));
  int64_t with = 0;
  for (int64_t i = 0; i < p.graph.nodes; ++i) {
    const auto* first = p.graph.col.data() + p.graph.rowptr[static_cast<size_t>(i)];
    const auto* last = p.graph.col.data() + p.graph.rowptr[static_cast<size_t>(i) + 1];
    const bool has = std::find(first, last, kSource) != last;
    with += has;
    for (int64_t c = 0; c < 4; ++c) EXPECT_EQ(std::isnan(element(p.y.view(), i * 4 + c)), has) << i;
  }
  EXPECT_GT(with, 0);
  EXPECT_LT(with, p.graph.nodes);
}

}  // namespace
}  // namespace braid
