// Values of edges and their softmax on a GPU, against the references on the CPU. Whole numbers, whose sums are exact,
// must agree to the bit; others within the rounding of FP32 sums.
#include "cuda_graph_fixture.h"
#include "kernels/edge_softmax/edge_softmax.h"
#include "kernels/sddmm/sddmm.h"

namespace braid {
namespace {

class CudaEdgesTest : public CudaGraphTest {
 protected:
  // The op `f` on a graph: whole numbers, to the bit, but for quotients.
  void check_sddmm(const TestGraph& g, PairOp f, int64_t width, int64_t values, DType type, bool scaled, bool no_v) {
    const bool exact = f != PairOp::div && f != PairOp::square;
    const Tensor u = whole(type, {g.rows(), width}),
                 v = f == PairOp::div ? random(type, {g.sources(), width}, 0.5, 2) : whole(type, {g.sources(), width}),
                 scale = whole(DType::f32, {g.rows()}), edge = random(DType::f32, {g.edges(), values}, 0.5, 2);
    Tensor y(arena_, DType::f32, {g.edges(), values});
    SddmmFwd op{.rowptr = list(g.rowptr), .col = list(g.col), .y = y.mut(), .op = f};
    if (f != PairOp::copy_v) op.u = u.view();
    if (f != PairOp::copy_u && !no_v) op.v = v.view();
    if (f == PairOp::square) op.edge = edge.view();
    if (scaled) op.u_scale = scale.view(), op.scale = -2;
    reference(op);
    op.rowptr = on_gpu(op.rowptr);
    op.col = on_gpu(op.col);
    op.u = on_gpu(op.u);
    op.v = on_gpu(op.v);
    op.u_scale = on_gpu(op.u_scale);
    op.edge = on_gpu(op.edge);
    op.y = result(DType::f32, {g.edges(), values});
    launch(op, "cuda");
    if (exact) return same(op.y, y.view());
    near(back(op.y), to_doubles(y.view()), 1e-6);
  }
};

TEST_F(CudaEdgesTest, SampledProducts) {
  const TestGraph g = graph(300, 40, 9, {{7, 700}, {8, 65}});
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const auto& [width, values] : {std::pair<int64_t, int64_t>{1, 1},
                                        {3, 3},
                                        {8, 2},
                                        {20, 4},
                                        {64, 1},
                                        {96, 3},
                                        {256, 4},
                                        {160, 40},
                                        {602, 1},
                                        {602, 7}}) {
      SCOPED_TRACE(testing::Message() << width << " in " << values << (type == DType::f32 ? " F32" : " BF16"));
      for (const PairOp f : {PairOp::dot, PairOp::square}) {
        check_sddmm(g, f, width, values, type, false, false);
        check_sddmm(g, f, width, values, type, true, false);
        check_sddmm(g, f, width, values, type, true, true);
      }
    }
  }
}

TEST_F(CudaEdgesTest, PairsChannelByChannel) {
  const TestGraph g = graph(300, 40, 9, {{7, 700}});
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const int64_t width : {1, 2, 5, 8, 33, 64, 129}) {
      SCOPED_TRACE(testing::Message() << width << (type == DType::f32 ? " F32" : " BF16"));
      for (const PairOp f : {PairOp::add, PairOp::sub, PairOp::mul, PairOp::div, PairOp::copy_u, PairOp::copy_v})
        check_sddmm(g, f, width, width, type, false, false);
    }
  }
}

// Rows are found wherever they begin: thousands without edges between two that have some, or one that has all.
TEST_F(CudaEdgesTest, RowsFarApart) {
  check_sddmm(graph(70'000, 5, 0, {{3, 5}, {4, 1}, {40'000, 90}, {40'001, 31}, {69'999, 2}}), PairOp::dot, 8, 2,
              DType::f32, true, false);
  check_sddmm(graph(1, 5, 0, {{0, 33}}), PairOp::dot, 8, 2, DType::f32, false, false);
  check_sddmm(graph(3, 5, 0, {{1, 1}}), PairOp::copy_u, 4, 4, DType::f32, false, false);
}

TEST_F(CudaEdgesTest, StridedRowsOfNodes) {
  const TestGraph g = graph(50, 20, 9, {});
  const Tensor u = whole(DType::f32, {50, 24}), v = whole(DType::f32, {20, 30});
  Tensor y(arena_, DType::f32, {g.edges(), 2});
  SddmmFwd op{.rowptr = list(g.rowptr),
              .col = list(g.col),
              .u = u.view().slice(1, 8, 16),
              .v = v.view().slice(1, 3, 16),
              .y = y.mut()};
  reference(op);
  op.rowptr = on_gpu(op.rowptr);
  op.col = on_gpu(op.col);
  op.u = on_gpu(u.view()).slice(1, 8, 16);
  op.v = on_gpu(v.view()).slice(1, 3, 16);
  op.y = result(DType::f32, {g.edges(), 2});
  launch(op, "cuda");
  same(op.y, y.view());
}

// Degrees around what a warp holds, for all numbers of heads; both passes, twice to the bit.
TEST_F(CudaEdgesTest, Softmax) {
  for (const int64_t heads : {1, 2, 3, 4, 5, 8, 16, 31, 32, 33, 40, 128, 602}) {
    SCOPED_TRACE(heads);
    const int64_t hub = heads > 100 ? 300 : 3000;
    const TestGraph g = graph(120, 40, 20, {{3, hub}, {4, 127}, {5, 128}, {6, 129}, {7, 257}, {60, 33}, {61, 5}});
    const Tensor x = random(DType::f32, {g.edges(), heads}, -4, 4), dy = random(DType::f32, {g.edges(), heads});
    Tensor y(arena_, DType::f32, {g.edges(), heads}), dx(arena_, DType::f32, {g.edges(), heads});
    EdgeSoftmaxFwd fwd{.rowptr = list(g.rowptr), .x = x.view(), .y = y.mut()};
    reference(fwd);
    EdgeSoftmaxBwd bwd{.rowptr = list(g.rowptr), .x = x.view(), .y = y.view(), .dy = dy.view(), .dx = dx.mut()};
    reference(bwd);
    fwd.rowptr = bwd.rowptr = on_gpu(fwd.rowptr);
    fwd.x = bwd.x = on_gpu(x.view());
    bwd.dy = on_gpu(dy.view());
    bwd.y = on_gpu(y.view());
    std::vector<double> first, first_gradient;
    for (int i = 0; i < 2; ++i) {
      fwd.y = result(DType::f32, {g.edges(), heads});
      bwd.dx = result(DType::f32, {g.edges(), heads});
      launch(fwd, "cuda");
      launch(bwd, "cuda");
      near(back(fwd.y), to_doubles(y.view()), 2e-6);
      near(back(bwd.dx), to_doubles(dx.view()), 5e-6);
      if (i == 0) first = back(fwd.y), first_gradient = back(bwd.dx);
    }
    EXPECT_EQ(back(fwd.y), first);
    EXPECT_EQ(back(bwd.dx), first_gradient);
  }
}

// Scores beyond what an exponential can be, in a row of a warp and in one of a block, and edges that are masked out.
TEST_F(CudaEdgesTest, LargeScoresDoNotOverflow) {
  for (const int64_t heads : {1, 4}) {
    for (const float slope : {0.2f, 0.0f}) {
      const std::vector<int64_t> rowptr = {0, 2, 1002};
      Tensor x(arena_, DType::f32, {1002, heads});
      for (int64_t at = 0; at < x.view().count(); ++at) {
        const int64_t e = at / heads;
        x.mut().as<float>()[at] = e < 2        ? 1000.0f - static_cast<float>(e)
                                  : e % 3 == 0 ? -std::numeric_limits<float>::infinity()
                                               : 5000.0f + static_cast<float>(e % 2);
      }
      if (slope == 0)
        for (int64_t at = 0; at < x.view().count(); ++at)
          if (std::isinf(x.mut().as<float>()[at])) x.mut().as<float>()[at] = -1e30f;
      EdgeSoftmaxFwd op{.rowptr = on_gpu(list(rowptr)),
                        .x = on_gpu(x.view()),
                        .y = result(DType::f32, {1002, heads}),
                        .slope = slope};
      launch(op, "cuda");
      const std::vector<double> y = back(op.y);
      double odd = 0, even = 0;
      for (int64_t e = 2; e < 1002; ++e) {
        if (e % 3 != 0) (e % 2 == 1 ? odd : even) += 1;
      }
      const double total = odd + even * std::exp(-1.0);
      for (int64_t at = 0; at < x.view().count(); ++at) {
        const int64_t e = at / heads;
        const double want = e < 2        ? std::exp(-static_cast<double>(e)) / (1 + std::exp(-1.0))
                            : e % 3 == 0 ? 0
                                         : (e % 2 == 1 ? 1 : std::exp(-1.0)) / total;
        EXPECT_NEAR(y[static_cast<size_t>(at)], want, 1e-6) << at;
      }
    }
  }
}

}  // namespace
}  // namespace braid
