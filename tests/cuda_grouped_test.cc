// The pipelined product with groups of rows on a GPU. Whole numbers, whose sums are exact, against the reference bit
// for bit; drawn numbers, for which all shapes of the pipeline must agree bit for bit. Columns of x that no group names
// are NaN.
#include <algorithm>
#include <numeric>
#include <set>

#include "core/device/gpu_groups.h"
#include "cuda_fixture.h"
#include "kernels/linear/grouped_gpu.h"
#include "kernels/linear/linear_grouped.h"

namespace braid {
namespace {

class CudaGrouped : public CudaTest {
 protected:
  // Rows of every group are drawn; group g has kept[g % size] of the columns, drawn too.
  GroupedRows draw(int64_t rows, int64_t cols, int64_t height, const std::vector<int64_t>& kept, bool whole) {
    GroupedRows g{.rows = rows, .cols = cols, .height = height, .dtype = DType::bf16};
    const int64_t groups = (rows + height - 1) / height;
    g.row_of.resize(static_cast<size_t>(rows));
    std::iota(g.row_of.begin(), g.row_of.end(), 0);
    std::shuffle(g.row_of.begin(), g.row_of.end(), numbers_);
    g.row_of.resize(static_cast<size_t>(groups * height), -1);
    std::vector<int32_t> all(static_cast<size_t>(cols));
    std::iota(all.begin(), all.end(), 0);
    g.begin.push_back(0);
    for (int64_t i = 0; i < groups; ++i) {
      const int64_t n = std::min(cols, kept[static_cast<size_t>(i % std::ssize(kept))]);
      std::shuffle(all.begin(), all.end(), numbers_);
      std::sort(all.begin(), all.begin() + n);
      g.columns.insert(g.columns.end(), all.begin(), all.begin() + n);
      g.begin.push_back(std::ssize(g.columns));
    }
    g.values.resize(g.columns.size() * static_cast<size_t>(2 * height));
    auto* values = reinterpret_cast<Bf16*>(g.values.data());
    for (size_t i = 0; i < g.columns.size() * static_cast<size_t>(height); ++i) values[i] = to_bf16(number(whole));
    for (int64_t i = 0; i < std::ssize(g.row_of); ++i) {  // padding rows are zeros
      const int64_t group = i / height;
      if (g.row_of[static_cast<size_t>(i)] >= 0) continue;
      for (int64_t k = g.begin[static_cast<size_t>(group)]; k < g.begin[static_cast<size_t>(group) + 1]; ++k)
        values[k * height + i % height] = to_bf16(0);
    }
    return g;
  }
  float number(bool whole) {
    return whole ? static_cast<float>(std::uniform_int_distribution(-4, 4)(numbers_))
                 : std::uniform_real_distribution(-1.0f, 1.0f)(numbers_);
  }
  Tensor drawn(DType type, const Shape& shape, bool whole) {
    Tensor t(arena_, type, shape);
    for (int64_t i = 0; i < shape.count(); ++i) set_element(t.mut(), i, static_cast<double>(number(whole)));
    return t;
  }
  // x with NaN where no group reads.
  Tensor poisoned(const Tensor& x, const GroupedRows& g) {
    const std::set<int32_t> read(g.columns.begin(), g.columns.end());
    Tensor t(arena_, x.dtype(), x.shape());
    for (int64_t i = 0; i < x.shape().count(); ++i)
      set_element(t.mut(), i,
                  read.contains(static_cast<int32_t>(i % x.dim(1))) ? element(x.view(), i)
                                                                    : std::numeric_limits<double>::quiet_NaN());
    return t;
  }
  std::vector<double> by(int pipeline, LinearGroupedFwd op) {
    op.y = result(op.y.dtype, op.y.shape);
    if (pipeline >= 0) use_pipeline(*gpu_, op, pipeline);
    launch(op);
    return back(op.y);
  }
};

TEST_F(CudaGrouped, WholeNumbersAreExactInEveryShape) {
  struct Case {
    int64_t rows, cols, tokens;
    std::vector<int64_t> kept;
    DType out;
    bool bias;
  };
  const std::vector<Case> cases = {
      {130, 515, 257, {515, 0, 1, 33}, DType::f32, true}, {64, 33, 1, {33, 7}, DType::bf16, false},
      {300, 96, 9, {64, 65, 96, 2}, DType::bf16, true},   {16, 1, 8, {1}, DType::f32, false},
      {257, 700, 63, {350, 128, 31}, DType::f32, false},  {128, 20, 130, {0}, DType::bf16, true}};
  for (size_t p = 0; p < kPipelines.size(); ++p) {
    for (const Case& c : cases) {
      const GroupedRows host = draw(c.rows, c.cols, kPipelines[p].height, c.kept, true);
      const GpuGroups groups(*gpu_, host);
      const Tensor x = drawn(DType::bf16, {c.tokens, c.cols}, true), bias = drawn(DType::f32, {c.rows}, true);
      Tensor y(arena_, c.out, {c.tokens, c.rows});
      LinearGroupedFwd op{.x = x.view(), .groups = host.view(), .bias = c.bias ? bias.view() : View(), .y = y.mut()};
      reference(op);
      op.x = on_gpu(poisoned(x, host).view());
      op.groups = groups.view();
      op.bias = on_gpu(op.bias);
      ASSERT_EQ(by(static_cast<int>(p), op), to_doubles(y.view())) << p << ": " << c.rows << " " << c.tokens;
    }
  }
}

TEST_F(CudaGrouped, EveryShapeHasTheBitsOfTheUnpipelinedOne) {
  for (size_t first = 0; first < kPipelines.size(); ++first) {
    const Pipeline& shape = kPipelines[first];
    if (first > 0 && kPipelines[first - 1].height == shape.height) continue;
    const int64_t height = shape.height, rows = 2 * height, cols = 8 * 64 + 40, tokens = 137;
    std::set<int64_t> chunks = {1, 7};
    for (const Pipeline& p : kPipelines) {
      if (p.height == height) chunks.insert({p.stages - 1, p.stages, p.stages + 1});
    }
    for (const int64_t n : chunks) {
      for (const int64_t kept : {n * 32, n * 32 - 5, n * 64}) {
        if (kept <= 0 || kept > cols) continue;
        const GpuGroups groups(*gpu_, draw(rows, cols, height, {kept, kept - 1}, false));
        const LinearGroupedFwd op{.x = on_gpu(drawn(DType::bf16, {tokens, cols}, false).view()),
                                  .groups = groups.view(),
                                  .y = MutView(nullptr, DType::f32, {tokens, rows}, Device::cuda)};
        int plain = static_cast<int>(first);
        for (size_t p = first; p < kPipelines.size() && kPipelines[p].height == height; ++p) {
          if (kPipelines[p].stages == 1) plain = static_cast<int>(p);
        }
        const std::vector<double> want = by(plain, op);
        for (const double v : want) ASSERT_FALSE(std::isnan(v));
        for (size_t p = first; p < kPipelines.size() && kPipelines[p].height == height; ++p)
          ASSERT_EQ(by(static_cast<int>(p), op), want) << p << " against " << plain << ", " << kept << " columns";
      }
    }
  }
}

TEST_F(CudaGrouped, DrawnNumbersAreNearTheReferenceAndTheSameAgain) {
  for (const int64_t height : {16, 32, 64, 128}) {
    const GroupedRows host = draw(200, 515, height, {130, 515, 64}, false);
    const GpuGroups groups(*gpu_, host);
    const Tensor x = drawn(DType::bf16, {70, 515}, false);
    Tensor y(arena_, DType::f32, {70, 200});
    LinearGroupedFwd op{.x = x.view(), .groups = host.view(), .y = y.mut()};
    reference(op);
    op.x = on_gpu(x.view());
    op.groups = groups.view();
    const std::vector<double> got = by(-1, op);
    near(got, to_doubles(y.view()), 2e-6);
    EXPECT_EQ(by(-1, op), got);
    tune_pipeline(
        *gpu_,
        [&] {
          op.y = result(DType::f32, {70, 200});
          return op;
        }(),
        3);
    EXPECT_EQ(by(-1, op), got);
  }
}

// A result depends on its own token alone, and rows of x and y need not be aligned or next to each other.
TEST_F(CudaGrouped, StridedRowsAndSingleTokens) {
  const GroupedRows host = draw(96, 70, 32, {70, 35}, false);
  const GpuGroups groups(*gpu_, host);
  const MutView x = on_gpu(drawn(DType::bf16, {40, 83}, false).view()), y = result(DType::bf16, {40, 101});
  const LinearGroupedFwd op{.x = x.slice(1, 5, 70), .groups = groups.view(), .y = y.slice(1, 3, 96)};
  launch(op);
  const std::vector<double> all = back(y);
  for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(std::isnan(all[i]), i % 101 < 3 || i % 101 >= 99) << i;
  for (const int64_t t : {0, 7, 39}) {
    const MutView one = result(DType::bf16, {1, 96});
    launch(LinearGroupedFwd{.x = op.x.slice(0, t, 1), .groups = groups.view(), .y = one});
    const std::vector<double> row = back(one);
    for (size_t i = 0; i < row.size(); ++i) ASSERT_EQ(row[i], all[static_cast<size_t>(t) * 101 + 3 + i]) << t;
  }
}

TEST_F(CudaGrouped, ManyTokensAreTakenInPieces) {
  const GroupedRows host = draw(24, 20, 16, {20, 9}, true);
  const GpuGroups groups(*gpu_, host);
  const Tensor x = drawn(DType::bf16, {16384 + 9, 20}, true);
  Tensor y(arena_, DType::bf16, {16384 + 9, 24});
  LinearGroupedFwd op{.x = x.view(), .groups = host.view(), .y = y.mut()};
  reference(op);
  op.x = on_gpu(x.view());
  op.groups = groups.view();
  EXPECT_EQ(by(-1, op), to_doubles(y.view()));
}

TEST_F(CudaGrouped, ARecordedProductRepeatsItsResult) {
  const GpuGroups groups(*gpu_, draw(128, 64, 64, {64, 10}, false));
  const MutView x = on_gpu(drawn(DType::bf16, {33, 64}, false).view()), y = result(DType::f32, {33, 128});
  const LinearGroupedFwd op{.x = x, .groups = groups.view(), .y = y};
  Ctx ctx{.arena = arena_, .gpu = gpu_.get()};
  GpuGraph graph;
  graph.record(*gpu_, [&] { run(ctx, op); });
  gpu_->upload(drawn(DType::bf16, {33, 64}, false).view(), x);
  run(ctx, op);
  const std::vector<double> direct = back(y);
  gpu_->upload(Tensor(arena_, DType::f32, {33, 128}).view(), y);
  graph.launch(*gpu_);
  EXPECT_EQ(back(y), direct);
}

// The model's blocks are the driver's, on the GPU that the registers of its table are for.
TEST_F(CudaGrouped, BlocksAreCountedAsTheDriverDoes) {
  if (gpus()[0].major != 9) GTEST_SKIP() << "SKIPPED: not a Hopper GPU";
  for (size_t p = 0; p < kPipelines.size(); ++p)
    EXPECT_EQ(blocks_of_unit(kPipelines[p], limits_of(*gpu_)), counted_blocks(static_cast<int>(p))) << p;
}

}  // namespace
}  // namespace braid
