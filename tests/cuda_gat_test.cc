// Attention over edges on a GPU, against the references on the CPU: rows of a warp, hubs that a block has on either
// side of the graph, nodes without edges, sources that are no rows. With BRAID_GPU_SPEED=1 the speed of each op is
// printed beside the bounds of its bytes.
#include <cuda_runtime.h>

#include <cstdlib>
#include <functional>
#include <ostream>
#include <tuple>
#include <utility>

#include "core/device/gpu_watch.cuh"
#include "cuda_graph_fixture.h"
#include "graph/generate.h"
#include "graph/graph.h"
#include "kernels/edge_softmax/edge_softmax.h"
#include "kernels/gat/gat.h"
#include "kernels/sddmm/sddmm.h"

namespace braid {
namespace {

struct Form {
  int64_t heads, part;
  DType x = DType::f32, y = DType::f32;
  bool loops = true;
};
std::ostream& operator<<(std::ostream& out, const Form& f) {
  return out << f.heads << " heads of " << f.part << (f.x == DType::bf16 ? " BF16" : " F32") << " to "
             << (f.y == DType::bf16 ? "BF16" : "F32") << (f.loops ? " with loops" : "");
}

class CudaGatTest : public CudaGraphTest {
 protected:
  // Inputs and results of the reference on the CPU, and a problem on the GPU.
  struct Problem {
    TestGraph graph;
    Tensor x, left, right, dy, y, top, sum, dx, dleft, dright;
    GatFwd fwd;
    GatBwd bwd;
  };
  Problem problem(TestGraph g, const Form& f, double spread = 2) {
    const int64_t rows = g.rows(), sources = g.sources(), width = f.heads * f.part;
    Problem p{.graph = std::move(g),
              .x = random(f.x, {sources, width}),
              .left = random(DType::f32, {rows, f.heads}, -spread, spread),
              .right = random(DType::f32, {sources, f.heads}, -spread, spread),
              .dy = random(DType::f32, {rows, width}),
              .y = Tensor(arena_, f.y, {rows, width}),
              .top = Tensor(arena_, DType::f32, {rows, f.heads}),
              .sum = Tensor(arena_, DType::f32, {rows, f.heads}),
              .dx = Tensor(arena_, DType::f32, {sources, width}),
              .dleft = Tensor(arena_, DType::f32, {rows, f.heads}),
              .dright = Tensor(arena_, DType::f32, {sources, f.heads}),
              .fwd = {},
              .bwd = {}};
    return p;
  }
  // The reference of both passes, then the same problem on the GPU: its backward pass reads the reference's results.
  void solve(Problem& p, const Form& f) {
    p.fwd = {.rowptr = list(p.graph.rowptr),
             .col = list(p.graph.col),
             .x = p.x.view(),
             .left = p.left.view(),
             .right = p.right.view(),
             .y = p.y.mut(),
             .top = p.top.mut(),
             .sum = p.sum.mut(),
             .loops = f.loops};
    p.bwd = {.rowptr = p.fwd.rowptr,
             .col = p.fwd.col,
             .out_rowptr = list(p.graph.out_rowptr),
             .out_col = list(p.graph.out_col),
             .x = p.x.view(),
             .left = p.left.view(),
             .right = p.right.view(),
             .top = p.top.view(),
             .sum = p.sum.view(),
             .y = p.y.view(),
             .dy = p.dy.view(),
             .dx = p.dx.mut(),
             .dleft = p.dleft.mut(),
             .dright = p.dright.mut(),
             .loops = f.loops};
    reference(p.fwd);
    reference(p.bwd);
    for (View* v : {&p.bwd.rowptr, &p.bwd.col, &p.bwd.out_rowptr, &p.bwd.out_col, &p.bwd.x, &p.bwd.left, &p.bwd.right,
                    &p.bwd.top, &p.bwd.sum, &p.bwd.y, &p.bwd.dy})
      *v = on_gpu(*v);
    p.fwd.rowptr = p.bwd.rowptr;
    p.fwd.col = p.bwd.col;
    p.fwd.x = p.bwd.x;
    p.fwd.left = p.bwd.left;
    p.fwd.right = p.bwd.right;
    poison(p);
  }
  void poison(Problem& p) {
    p.fwd.y = result(p.y.view().dtype, p.y.view().shape);
    p.fwd.top = result(DType::f32, p.top.view().shape);
    p.fwd.sum = result(DType::f32, p.sum.view().shape);
    p.bwd.dx = result(DType::f32, p.dx.view().shape);
    p.bwd.dleft = result(DType::f32, p.dleft.view().shape);
    p.bwd.dright = result(DType::f32, p.dright.view().shape);
  }
  void compare(const Problem& p) {
    near(back(p.fwd.y), to_doubles(p.y.view()), p.y.view().dtype == DType::bf16 ? 1.0 / 128 : 5e-6);
    near(back(p.fwd.top), to_doubles(p.top.view()), 1e-6);
    near(back(p.fwd.sum), to_doubles(p.sum.view()), 5e-6);
    near(back(p.bwd.dx), to_doubles(p.dx.view()), 1e-5);
    near(back(p.bwd.dleft), to_doubles(p.dleft.view()), 5e-5);
    near(back(p.bwd.dright), to_doubles(p.dright.view()), 5e-5);
  }
  static std::vector<MutView> outputs(const Problem& p) {
    return {p.fwd.y, p.fwd.top, p.fwd.sum, p.bwd.dx, p.bwd.dleft, p.bwd.dright};
  }
};

TEST_F(CudaGatTest, BothPassesTwice) {
  for (const Form& f :
       {Form{1, 1}, Form{4, 3, DType::f32, DType::f32, false}, Form{3, 4}, Form{1, 5, DType::bf16, DType::bf16},
        Form{8, 8, DType::bf16, DType::f32}, Form{4, 16, DType::bf16, DType::bf16, false},
        Form{5, 24, DType::f32, DType::bf16}, Form{2, 33}, Form{4, 64, DType::f32, DType::f32, false},
        Form{4, 64, DType::bf16, DType::bf16}, Form{1, 128}, Form{2, 132, DType::f32, DType::f32, false},
        Form{1, 150, DType::bf16, DType::f32}, Form{1, 264, DType::bf16, DType::bf16}, Form{1, 516},
        Form{1, 520, DType::bf16, DType::f32}, Form{1, 602}}) {
    SCOPED_TRACE(f);
    // Rows of 512 and 513 edges lie on both sides of what a warp takes; source 1 has more.
    Problem p = problem(graph(70, 74, 40, {{7, 512}, {8, 513}, {9, 1500}, {40, 32}, {41, 33}, {42, 1}}), f);
    solve(p, f);
    launch(p.fwd, "cuda");
    launch(p.bwd, "cuda");
    compare(p);
    const std::vector<MutView> first = outputs(p);
    poison(p);
    launch(p.fwd, "cuda");
    launch(p.bwd, "cuda");
    const std::vector<MutView> second = outputs(p);
    for (size_t i = 0; i < first.size(); ++i) EXPECT_EQ(back(first[i]), back(second[i])) << i;
  }
}

// Equal scores: the exact mean of whole numbers, rounded once, whatever the order. Sources that nobody reads are NaN.
TEST_F(CudaGatTest, EqualScoresAreTheMean) {
  for (const auto& [heads, part] : {std::pair<int64_t, int64_t>{4, 8}, {1, 5}, {1, 160}}) {
    const int64_t width = heads * part;
    const TestGraph g = graph(70, 74, 40, {{7, 512}, {8, 513}, {9, 1500}});
    const Tensor x = whole(DType::f32, {74, width}), zero = whole(DType::f32, {74, heads}, 0);
    for (int64_t at = 72 * width; at < 74 * width; ++at)
      x.mut().as<float>()[at] = std::numeric_limits<float>::quiet_NaN();
    GatFwd op{.rowptr = on_gpu(list(g.rowptr)),
              .col = on_gpu(list(g.col)),
              .x = on_gpu(x.view()),
              .left = on_gpu(zero.view().slice(0, 0, 70)),
              .right = on_gpu(zero.view()),
              .y = result(DType::f32, {70, width}),
              .top = result(DType::f32, {70, heads}),
              .sum = result(DType::f32, {70, heads}),
              .loops = false};
    launch(op, "cuda");
    const std::vector<double> y = back(op.y), top = back(op.top), sum = back(op.sum);
    for (int64_t i = 0; i < 70; ++i) {
      const int64_t begin = g.rowptr[static_cast<size_t>(i)], end = g.rowptr[static_cast<size_t>(i) + 1];
      EXPECT_EQ(top[static_cast<size_t>(i * heads)], 0);
      EXPECT_EQ(sum[static_cast<size_t>(i * heads)], static_cast<double>(end - begin));
      for (int64_t c = 0; c < width; ++c) {
        float total = 0;
        for (int64_t e = begin; e < end; ++e) total += x.view().as<float>(g.col[static_cast<size_t>(e)])[c];
        const float want = begin == end ? 0 : total / static_cast<float>(end - begin);
        EXPECT_EQ(y[static_cast<size_t>(i * width + c)], static_cast<double>(want)) << i << " " << c;
      }
    }
  }
}

// Scores that rise from edge to edge, and scores beyond what an exponential can be.
TEST_F(CudaGatTest, ScoresFarApart) {
  for (const double spread : {90.0, 2e4}) {
    const Form f{4, 16};
    Problem p = problem(graph(70, 74, 40, {{7, 512}, {9, 1500}}), f, spread);
    for (int64_t e = p.graph.rowptr[9]; e < p.graph.rowptr[10]; ++e) {
      for (int64_t h = 0; h < f.heads; ++h)
        p.right.mut().as<float>(p.graph.col[static_cast<size_t>(e)])[h] =
            static_cast<float>(spread * static_cast<double>(e) / 3000);
    }
    solve(p, f);
    launch(p.fwd, "cuda");
    near(back(p.fwd.y), to_doubles(p.y.view()), spread < 100 ? 5e-5 : 5e-3);  // an ulp of a score of 2e4 is 2e-3
    near(back(p.fwd.top), to_doubles(p.top.view()), 1e-6);
    launch(p.bwd, "cuda");
    for (const MutView& v : {p.bwd.dx, p.bwd.dleft, p.bwd.dright}) {
      for (const double d : back(v)) ASSERT_TRUE(std::isfinite(d));
    }
  }
}

TEST_F(CudaGatTest, Scores) {
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const auto& [nodes, heads, part] : {std::tuple<int64_t, int64_t, int64_t>{1, 4, 5},
                                             {300, 4, 5},
                                             {40'000, 1, 8},
                                             {17, 4, 64},
                                             {1000, 3, 40},
                                             {33, 2, 301},
                                             {5, 1, 1}}) {
      SCOPED_TRACE(testing::Message() << nodes << " nodes, " << heads << " heads of " << part);
      const int64_t width = heads * part;
      // Whole numbers: sums over nodes are exact in any order.
      const Tensor x = whole(type, {nodes, width}, 2), a_src = whole(DType::f32, {width}),
                   a_dst = whole(DType::f32, {width});
      const Tensor dright = whole(DType::f32, {nodes, heads}, 2), dleft = whole(DType::f32, {nodes, heads}, 2);
      Tensor right(arena_, DType::f32, {nodes, heads}), left(arena_, DType::f32, {nodes, heads}),
          dx(arena_, DType::f32, {nodes, width});
      const Tensor da_src = whole(DType::f32, {width}), da_dst = whole(DType::f32, {width});
      const MutView gpu_src = on_gpu(da_src.view()), gpu_dst = on_gpu(da_dst.view());
      GatScoresFwd fwd{
          .x = x.view(), .a_src = a_src.view(), .a_dst = a_dst.view(), .right = right.mut(), .left = left.mut()};
      GatScoresBwd bwd{.dright = dright.view(),
                       .dleft = dleft.view(),
                       .x = x.view(),
                       .a_src = a_src.view(),
                       .a_dst = a_dst.view(),
                       .dx = dx.mut(),
                       .da_src = da_src.mut(),
                       .da_dst = da_dst.mut()};
      reference(fwd);
      reference(bwd);
      fwd.x = bwd.x = on_gpu(x.view());
      fwd.a_src = bwd.a_src = on_gpu(a_src.view());
      fwd.a_dst = bwd.a_dst = on_gpu(a_dst.view());
      fwd.right = result(DType::f32, {nodes, heads});
      fwd.left = result(DType::f32, {nodes, heads});
      bwd.dright = on_gpu(dright.view());
      bwd.dleft = on_gpu(dleft.view());
      bwd.dx = result(DType::f32, {nodes, width});
      bwd.da_src = gpu_src;
      bwd.da_dst = gpu_dst;
      launch(fwd, "cuda");
      launch(bwd, "cuda");
      same(fwd.right, right.view());
      same(fwd.left, left.view());
      same(bwd.dx, dx.view());
      same(bwd.da_src, da_src.view());
      same(bwd.da_dst, da_dst.view());
    }
  }
}

class CudaGatSpeedTest : public CudaGatTest {
 protected:
  void SetUp() override {
    CudaGatTest::SetUp();
    if (IsSkipped()) return;
    if (!std::getenv("BRAID_GPU_SPEED")) GTEST_SKIP() << "SKIPPED: a measurement, on with BRAID_GPU_SPEED=1";
    roof_ = measure_gpu_roofs(0).copy_gbs;
    std::printf("%s, copy %.0f GB/s\n", gpus()[0].name.c_str(), roof_);
  }
  // Numbers of normal size that take no time to draw.
  MutView filled(const Shape& shape) {
    Tensor t(arena_, DType::f32, shape);
    for (int64_t at = 0; at < shape.count(); ++at)
      t.mut().as<float>()[at] = static_cast<float>(at * 2654435761 % 65536) / 32768 - 1;
    return on_gpu(t.view());
  }
  struct Pass {
    const char* name;
    double least, most;  // bytes: every row of nodes once, and again for every edge
    std::function<void()> run;
    std::vector<double> times{};
  };
  // All passes in turns.
  void race(std::vector<Pass>& passes) {
    constexpr int kWarmUp = 3, kRounds = 15;
    GpuWatch watch(static_cast<cudaStream_t>(gpu_->stream()));
    for (int round = 0; round < kWarmUp + kRounds; ++round) {
      for (Pass& p : passes) {
        watch.begin();
        p.run();
        const auto ms = static_cast<double>(watch.end());
        if (round >= kWarmUp) p.times.push_back(ms);
      }
    }
    std::printf("%-18s %9s %9s | %8s %6s | %8s %6s\n", "median of 15", "ms", "least ms", "GB once", "roof", "GB/edge",
                "roof");
    for (Pass& p : passes) {
      std::sort(p.times.begin(), p.times.end());
      const double ms = p.times[p.times.size() / 2];
      std::printf("%-18s %9.3f %9.3f | %8.3f %5.0f%% | %8.3f %5.0f%%\n", p.name, ms, p.times[0], p.least / 1e9,
                  p.least / ms / 1e4 / roof_, p.most / 1e9, p.most / ms / 1e4 / roof_);
    }
  }
  double roof_ = 0;
};

// A layer of attention, fused and in parts, on an R-MAT graph. Beside each time are the bytes of two bounds and what
// share of the speed of a copy they make: more than 100% with rows again for every edge means that the cache served
// many of them.
class CudaGatLayerTest : public CudaGatSpeedTest {
 protected:
  static constexpr int64_t kHeads = 4, kWidth = kHeads * 64;

  void load() {
    const graph::Graph g = graph::make_graph(graph::rmat_graph(18, 16, 1));
    std::printf("%s\n", graph::describe(graph::stats_of(g.in)).c_str());
    const int64_t nodes = g.rows(), edges = g.edges();
    n_ = static_cast<double>(nodes), e_ = static_cast<double>(edges);
    rowptr_ = on_gpu(g.in.rowptr_view()), col_ = on_gpu(g.in.col_view());
    out_rowptr_ = on_gpu(g.out.rowptr_view()), out_col_ = on_gpu(g.out.col_view());
    for (MutView* v : {&x_, &dy_, &y_, &dx_}) *v = filled({nodes, kWidth});
    for (MutView* v : {&left_, &right_, &top_, &sum_, &dleft_, &dright_}) *v = filled({nodes, kHeads});
    for (MutView* v : {&scores_, &p_, &dp_, &dscores_}) *v = filled({edges, kHeads});
    a_ = filled({kWidth}), da_ = filled({kWidth});
  }
  template <class Op>
  std::function<void()> runs(const Op& op) {
    return [this, op] { run(ctx_, op); };
  }
  std::vector<Pass> fused() {
    const double graph = 8 * n_ + 4 * e_;
    const GatFwd fwd{.rowptr = rowptr_,
                     .col = col_,
                     .x = x_,
                     .left = left_,
                     .right = right_,
                     .y = y_,
                     .top = top_,
                     .sum = sum_,
                     .loops = false};
    const GatBwd bwd{.rowptr = rowptr_,
                     .col = col_,
                     .out_rowptr = out_rowptr_,
                     .out_col = out_col_,
                     .x = x_,
                     .left = left_,
                     .right = right_,
                     .top = top_,
                     .sum = sum_,
                     .y = y_,
                     .dy = dy_,
                     .dx = dx_,
                     .dleft = dleft_,
                     .dright = dright_,
                     .loops = false};
    const GatScoresFwd scores{.x = x_, .a_src = a_, .a_dst = a_, .right = right_, .left = left_};
    const GatScoresBwd gradients{
        .dright = dright_, .dleft = dleft_, .x = x_, .a_src = a_, .a_dst = a_, .dx = dx_, .da_src = da_, .da_dst = da_};
    const double few = n_ * (kRow + 2 * kHead), both = n_ * (2 * kRow + 2 * kHead);
    return {{"gat_fwd", graph + n_ * (2 * kRow + 4 * kHead), graph + n_ * (kRow + 3 * kHead) + e_ * (kRow + kHead),
             runs(fwd)},
            {"gat_bwd", 2 * graph + n_ * (5 * kRow + 14 * kHead),
             2 * graph + n_ * (4 * kRow + 10 * kHead) + e_ * (2 * kRow + 5 * kHead), runs(bwd)},
            {"gat_scores_fwd", few, few, runs(scores)},
            {"gat_scores_bwd", both, both, runs(gradients)}};
  }
  std::vector<Pass> parts() {
    const double graph = 8 * n_ + 4 * e_, two = 8 * n_ + 2 * e_ * kHead, four = 8 * n_ + 4 * e_ * kHead;
    const SddmmFwd add{.rowptr = rowptr_, .col = col_, .u = left_, .v = right_, .y = scores_, .op = PairOp::add};
    const SddmmFwd dot{.rowptr = rowptr_, .col = col_, .u = dy_, .v = x_, .y = dp_};
    const EdgeSoftmaxFwd fwd{.rowptr = rowptr_, .x = scores_, .y = p_};
    const EdgeSoftmaxBwd bwd{.rowptr = rowptr_, .x = scores_, .y = p_, .dy = dp_, .dx = dscores_};
    return {{"sddmm_fwd add", graph + 2 * n_ * kHead + e_ * kHead, graph + n_ * kHead + 2 * e_ * kHead, runs(add)},
            {"edge_softmax_fwd", two, two, runs(fwd)},
            {"sddmm_fwd dot", graph + 2 * n_ * kRow + e_ * kHead, graph + n_ * kRow + e_ * (kRow + kHead), runs(dot)},
            {"edge_softmax_bwd", four, four, runs(bwd)}};
  }

  static constexpr double kRow = 4 * kWidth, kHead = 4 * kHeads;  // bytes
  double n_ = 0, e_ = 0;
  MutView rowptr_, col_, out_rowptr_, out_col_, x_, dy_, y_, dx_, left_, right_, top_, sum_, dleft_, dright_, scores_,
      p_, dp_, dscores_, a_, da_;
  Ctx ctx_{.arena = arena_};
};

TEST_F(CudaGatLayerTest, Speed) {
  load();
  ctx_.gpu = gpu_.get();
  std::vector<Pass> passes = fused();
  for (Pass& p : parts()) passes.push_back(std::move(p));
  race(passes);
  std::printf("stored for backward beside y: fused %.1f MB of nodes; in parts %.1f MB of edges\n", 2 * n_ * kHead / 1e6,
              2 * e_ * kHead / 1e6);
}

}  // namespace
}  // namespace braid
