// spmm's GPU rows against its reference: every message and reduction, odd widths, a hub of several pieces, parallel
// edges, empty rows at both ends, sources that no edge names and that hold NaN. Small integers make sums exact, so
// there every row must equal the reference bit for bit.
#include "cuda_fixture.h"
#include "kernels/spmm/spmm.h"
#include "kernels/spmm/spmm_pack.h"
#include "kernels/spmm/spmm_tiles.h"

namespace braid {
namespace {

constexpr EdgeOp kOps[] = {EdgeOp::copy_x, EdgeOp::copy_e, EdgeOp::add, EdgeOp::sub, EdgeOp::mul, EdgeOp::div};
constexpr Reduce kReduces[] = {Reduce::sum, Reduce::mean, Reduce::max, Reduce::min};
constexpr const char* kPlainRows[] = {"cuda_sr", "cuda_merge", "cuda_pr", "cuda_eb_pr", "cusparse"};

// What a case has besides the op.
struct Extras {
  DType x = DType::f32, y = DType::f32;
  int64_t values = 1;
  bool order = false, scale = false, own = false, integers = false;
};

class CudaSpmmTest : public CudaTest {
 protected:
  struct TestGraph {
    std::vector<int64_t> rowptr = {0};
    std::vector<int32_t> col, order;
    int64_t sources = 0;
    int64_t rows() const { return std::ssize(rowptr) - 1; }
    int64_t edges() const { return std::ssize(col); }
    int64_t longest() const {
      int64_t most = 0;
      for (int64_t i = 0; i < rows(); ++i)
        most = std::max(most, rowptr[static_cast<size_t>(i) + 1] - rowptr[static_cast<size_t>(i)]);
      return most;
    }
  };

  int64_t draw(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(numbers_); }

  // The last source has no edge.
  TestGraph graph_of(int64_t rows, int64_t sources, int64_t hub) {
    TestGraph g;
    g.sources = sources;
    g.col.reserve(1);  // also of a graph without edges the views point somewhere
    g.order.reserve(1);
    for (int64_t i = 0; i < rows; ++i) {
      int64_t degree = draw(4) == 0 ? 0 : draw(40);
      if (i == rows / 2) degree = hub;
      if (rows > 1 && (i == 0 || i == rows - 1)) degree = 0;
      for (int64_t e = 0; e < degree; ++e)
        g.col.push_back(static_cast<int32_t>(draw(std::max<int64_t>(1, sources - 1))));
      std::sort(g.col.end() - degree, g.col.end());
      g.rowptr.push_back(g.edges());
    }
    for (int64_t e = 0; e < g.edges(); ++e) g.order.push_back(static_cast<int32_t>(g.edges() - 1 - e));
    return g;
  }

  Tensor numbers(DType dtype, const Shape& shape, bool integers, bool positive = false) {
    if (!integers) return random(dtype, shape, positive ? 0.3 : -1, 1);
    Tensor t(arena_, dtype, shape);
    std::vector<double> values(static_cast<size_t>(shape.count()));
    for (double& v : values) v = static_cast<double>((positive || draw(2) == 0 ? 1 : -1) * (1 << draw(3)));
    store(t.mut(), values);
    return t;
  }

  SpmmTileViews on_gpu_too(const SpmmTileViews& v) {
    return {.window = on_gpu(v.window),
            .source = on_gpu(v.source),
            .begin = on_gpu(v.begin),
            .cell = on_gpu(v.cell),
            .edge = on_gpu(v.edge)};
  }

  // Runs one row, twice, the second time with the rows by degree, and compares it with the reference.
  void hold(const TestGraph& g, int64_t width, EdgeOp f, Reduce reduce, const char* row, const Extras& with) {
    SCOPED_TRACE(testing::Message() << row << " op " << static_cast<int>(f) << " reduce " << static_cast<int>(reduce)
                                    << " width " << width << " values " << with.values);
    const bool picks = reduce == Reduce::max || reduce == Reduce::min;
    const Tensor x = numbers(with.x, {g.sources, width}, with.integers),
                 scale = numbers(DType::f32, {g.sources}, with.integers, true),
                 edge = numbers(DType::f32, {g.edges(), with.values}, with.integers, true),
                 self = numbers(DType::f32, {std::min<int64_t>(g.rows(), g.sources) / 2}, with.integers),
                 add = numbers(with.y, {g.rows(), width}, with.integers);
    for (int64_t c = 0; c < width && !with.own && g.sources > 1; ++c)
      set_element(x.mut(), (g.sources - 1) * width + c, std::nan(""));
    Tensor y(arena_, with.y, {g.rows(), width}), arg(arena_, DType::i32, {g.rows(), width});
    const auto maybe_view = [](bool has, const View& v) { return has ? v : View(); };
    SpmmFwd op{.rowptr = view_of(g.rowptr.data(), {g.rows() + 1}),
               .col = view_of(g.col.data(), {g.edges()}),
               .order = maybe_view(with.order, view_of(g.order.data(), {g.edges()})),
               .x = maybe_view(f != EdgeOp::copy_e, x.view()),
               .x_scale = maybe_view(with.scale, scale.view()),
               .edge = maybe_view(f != EdgeOp::copy_x, edge.view()),
               .self = maybe_view(with.own && reduce == Reduce::sum, self.view()),
               .add = maybe_view(with.own && picks, add.view()),
               .y = y.mut(),
               .arg = picks ? arg.mut() : MutView(),
               .own = with.own && reduce == Reduce::sum ? 2.0f : 0.0f,
               .op = f,
               .reduce = reduce};
    op.self_row = op.self ? 1 : 0;
    reference(op);
    for (View* v : {&op.rowptr, &op.col, &op.order, &op.x, &op.x_scale, &op.edge, &op.self, &op.add}) *v = on_gpu(*v);
    const SpmmTiles tiles = tile_spmm(view_of(g.rowptr.data(), {g.rows() + 1}), view_of(g.col.data(), {g.edges()}));
    const SpmmTileViews tile_views = on_gpu_too(tiles.views());
    const std::vector<int32_t> by_degree = rows_by_degree(view_of(g.rowptr.data(), {g.rows() + 1}));
    op.tiles = &tile_views;
    std::vector<double> first;
    for (int repeat = 0; repeat < 2; ++repeat) {
      op.y = result(with.y, {g.rows(), width});
      if (repeat == 1) {
        op.tuning.longest = g.longest();
        op.by_degree = on_gpu(view_of(by_degree.data(), {g.rows()}));
      }
      if (picks) op.arg = result(DType::i32, {g.rows(), width});
      launch(op, row);
      const std::vector<double> got = back(op.y);
      if (repeat == 1 && row != std::string("cusparse")) {
        EXPECT_EQ(got, first) << "another result";
      }
      first = got;
    }
    if (with.integers && reduce != Reduce::mean) {
      EXPECT_EQ(first, to_doubles(y.view()));
    } else {
      near(first, to_doubles(y.view()), with.y == DType::bf16 ? 1.0 / 128 : 2e-5);
    }
    if (picks && with.integers) {
      EXPECT_EQ(back(op.arg), to_doubles(arg.view()));
    }
    drop();
  }
};

TEST_F(CudaSpmmTest, EveryMessageAndReduction) {
  const TestGraph g = graph_of(61, 37, 1500);
  for (const EdgeOp f : kOps) {
    if (f == EdgeOp::copy_e) continue;
    for (const Reduce reduce : kReduces) {
      for (const int64_t width : {1, 6, 24, 132}) {
        for (const bool integers : {true, false}) {
          hold(g, width, f, reduce, "cuda_sr", {.integers = integers});
          hold(g, width, f, reduce, "cuda_sr",
               {.values = width % 3 == 0 ? 3 : width, .order = true, .own = true, .integers = integers});
        }
      }
      hold(g, 24, f, reduce, "cuda_sr",
           {.x = DType::bf16, .y = DType::bf16, .order = true, .scale = true, .own = true});
    }
  }
  for (const Reduce reduce : kReduces)
    hold(g, 6, EdgeOp::copy_e, reduce, "cuda_sr", {.values = 2, .order = true, .integers = true});
}

TEST_F(CudaSpmmTest, PlainProductsOfEveryWidth) {
  const TestGraph g = graph_of(143, 90, 2600);
  for (const char* row : kPlainRows) {
    for (const int64_t width : {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 64, 100, 128, 129, 256, 602}) {
      if (row == std::string("cuda_pr") && width > 4) continue;
      hold(g, width, EdgeOp::mul, Reduce::sum, row, {.integers = true});
    }
    hold(g, 4, EdgeOp::mul, Reduce::sum, row, {});
  }
  for (const char* row : {"cuda_merge", "cuda_pr"}) {
    for (const Reduce reduce : {Reduce::sum, Reduce::mean}) {
      hold(g, 3, EdgeOp::copy_x, reduce, row, {.scale = true, .own = true, .integers = true});
      hold(g, 4, EdgeOp::mul, reduce, row, {.x = DType::bf16, .y = DType::bf16, .order = true, .own = true});
    }
  }
}

TEST_F(CudaSpmmTest, GraphsOfEveryShape) {
  struct Size {
    int64_t rows, sources, hub;
  };
  for (const Size& s :
       {Size{1, 1, 1}, {1, 5, 700}, {2, 3, 0}, {3, 2, 512}, {5, 9, 513}, {1000, 20, 256}, {40, 4000, 9000}}) {
    const TestGraph g = graph_of(s.rows, s.sources, s.hub);
    for (const char* row : kPlainRows) {
      if (row == std::string("cusparse") && (g.edges() == 0 || g.edges() > s.rows * s.sources)) continue;  // it refuses
      for (const int64_t width : {1, 4, 40}) {
        if (row == std::string("cuda_pr") && width > 4) continue;
        hold(g, width, EdgeOp::mul, Reduce::sum, row, {.integers = true});
      }
    }
    hold(g, 9, EdgeOp::sub, Reduce::max, "cuda_sr", {.integers = true});
  }
}

// Values are split in two: what is left out is about 2^-17 of a term. Integers are exact.
TEST_F(CudaSpmmTest, DenseTiles) {
  struct Size {
    int64_t rows, sources, hub;
  };
  for (const Size& s : {Size{1, 1, 1}, {16, 9, 40}, {17, 300, 700}, {143, 90, 2600}, {40, 4000, 9000}}) {
    const TestGraph g = graph_of(s.rows, s.sources, s.hub);
    for (const int64_t width : {8, 16, 24, 32, 40, 64, 72, 128, 200, 256}) {
      const Extras with{.x = DType::bf16, .integers = true};
      hold(g, width, EdgeOp::mul, Reduce::sum, "cuda_tiles", with);
      hold(g, width, EdgeOp::copy_x, Reduce::sum, "cuda_tiles", with);
    }
    for (const EdgeOp f : {EdgeOp::mul, EdgeOp::copy_x}) {
      for (const Reduce reduce : {Reduce::sum, Reduce::mean}) {
        for (const bool scale : {false, true}) {
          for (const int64_t width : {24, 40, 200})
            hold(g, width, f, reduce, "cuda_tiles", {.x = DType::bf16, .order = true, .scale = scale, .own = true});
          hold(g, 64, f, reduce, "cuda_tiles", {.x = DType::bf16, .y = DType::bf16, .scale = scale, .own = true});
        }
      }
    }
  }
}

// Its scratch belongs to the recording: what is taken from the pool later is not written when it runs again.
TEST_F(CudaSpmmTest, ARecordedPassKeepsItsScratch) {
  const TestGraph g = graph_of(50, 40, 3000);
  const SpmmFwd op{.rowptr = on_gpu(view_of(g.rowptr.data(), {g.rows() + 1})),
                   .col = on_gpu(view_of(g.col.data(), {g.edges()})),
                   .x = on_gpu(random(DType::f32, {40, 24}).view()),
                   .y = result(DType::f32, {50, 24})};
  for (const char* row : {"cuda_sr", "cuda_merge"}) {
    Ctx ctx{.arena = arena_, .gpu = gpu_.get()};
    ctx.forced_rows[SpmmFwd::name] = row;
    GpuGraph graph;
    graph.record(*gpu_, [&] { run(ctx, op); });
    const std::vector<double> direct = back(op.y);
    std::vector<MutView> later;
    for (int64_t floats = 128; floats <= 65536; floats += floats / 8)
      later.push_back(on_gpu(random(DType::f32, {floats}).view()));
    std::vector<std::vector<double>> before;
    for (const MutView& v : later) before.push_back(back(v));
    graph.launch(*gpu_);
    EXPECT_EQ(back(op.y), direct) << row;
    for (size_t i = 0; i < later.size(); ++i) EXPECT_EQ(back(later[i]), before[i]) << row << " " << i;
  }
}

// NaN wins, the first of equal values too.
TEST_F(CudaSpmmTest, LargestOfNaNAndOfEqualValues) {
  const std::vector<int64_t> rowptr = {0, 4, 1204};
  std::vector<int32_t> col = {0, 1, 2, 1};
  for (int64_t e = 4; e < 1204; ++e) col.push_back(e == 900 ? 2 : 0);
  Tensor x(arena_, DType::f32, {3, 1}), y(arena_, DType::f32, {2, 1}), arg(arena_, DType::i32, {2, 1});
  store(x.mut(), {1.0, 1.0, std::nan("")});
  SpmmFwd op{.rowptr = on_gpu(view_of(rowptr.data(), {3})),
             .col = on_gpu(view_of(col.data(), {1204})),
             .x = on_gpu(x.view()),
             .y = on_gpu(y.view()),
             .arg = on_gpu(arg.view()),
             .reduce = Reduce::max};
  launch(op);
  EXPECT_TRUE(std::isnan(back(op.y)[0]) && std::isnan(back(op.y)[1]));
  EXPECT_EQ(back(op.arg), (std::vector<double>{2, 900}));
  store(x.mut(), {1.0, 1.0, 0.5});
  op.x = on_gpu(x.view());
  launch(op);
  EXPECT_EQ(back(op.arg), (std::vector<double>{0, 4}));
}

}  // namespace
}  // namespace braid
