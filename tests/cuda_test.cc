// GPU rows against the references on the CPU: fresh random numbers in every run (the seed is printed), outputs filled
// with NaN first, odd sizes. Reported as skipped without a GPU.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <random>

#include "core/device/gpu.h"
#include "core/device/gpu_runtime.h"
#include "core/ref.h"
#include "kernels/linear/linear.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/ssd/ssd.h"

namespace braid {
namespace {

class CudaTest : public testing::Test {
 protected:
  void SetUp() override {
    if (gpus().empty()) GTEST_SKIP() << "SKIPPED: no GPU on this machine";
    gpu_ = std::make_unique<GpuRuntime>();
    RecordProperty("seed", std::to_string(seed_));
  }
  void TearDown() override {
    for (std::byte* data : taken_) gpu_->memory().give_back(data);
    if (HasFailure()) std::printf("seed %u\n", seed_);
  }

  Tensor random(DType dtype, const Shape& shape, double low = -1, double high = 1) {
    Tensor t(arena_, dtype, shape);
    std::vector<double> values(static_cast<size_t>(shape.count()));
    for (double& v : values) v = std::uniform_real_distribution(low, high)(numbers_);
    store(t.mut(), values);
    return t;
  }
  MutView on_gpu(const View& host) {
    taken_.push_back(gpu_->memory().take(host.bytes()));
    const MutView device(taken_.back(), host.dtype, host.shape, Device::cuda);
    gpu_->upload(host, device);
    return device;
  }
  // Memory for a result, filled with NaN.
  MutView result(DType dtype, const Shape& shape) {
    Tensor nan(arena_, dtype, shape);
    store(nan.mut(), std::vector<double>(static_cast<size_t>(shape.count()), std::numeric_limits<double>::quiet_NaN()));
    return on_gpu(nan.view());
  }
  std::vector<double> back(const View& device) {
    Tensor host(arena_, device.dtype, device.shape);
    gpu_->download(device, host.mut());
    return to_doubles(host.view());
  }
  void near(const std::vector<double>& got, const std::vector<double>& want, double bound) {
    ASSERT_EQ(got.size(), want.size());
    double largest = 1e-30, worst = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_FALSE(std::isnan(got[i])) << i;
      largest = std::max(largest, std::fabs(want[i]));
      worst = std::max(worst, std::fabs(got[i] - want[i]));
    }
    EXPECT_LE(worst, bound * largest);
  }
  // Runs the reference row on the same problem.
  template <class Op>
  void reference(const Op& op) {
    Ctx ctx{.arena = arena_};
    run_row(ctx, op, row_named<Op>("ref"));
  }
  template <class Op>
  void launch(const Op& op) {
    Ctx ctx{.arena = arena_, .gpu = gpu_.get()};
    run(ctx, op);
  }

  Arena arena_;
  std::unique_ptr<GpuRuntime> gpu_;
  std::vector<std::byte*> taken_;
  unsigned seed_ = static_cast<unsigned>(std::chrono::steady_clock::now().time_since_epoch().count());
  std::mt19937 numbers_{seed_};
};

TEST_F(CudaTest, StagingCarriesEveryByte) {
  const Tensor host = random(DType::f32, {5, 1'048'583});  // more than two pieces, the last one partial
  EXPECT_EQ(back(on_gpu(host.view())), to_doubles(host.view()));
}

TEST_F(CudaTest, Product) {
  struct Size {
    int64_t tokens, rows, depth;
  };
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Size& s : {Size{1, 1856, 2688}, {7, 96, 80}, {33, 130, 72}, {0, 8, 8}}) {
      const Tensor x = random(dtype, {s.tokens, s.depth}), w = random(dtype, {s.rows, s.depth});
      Tensor y(arena_, DType::f32, {s.tokens, s.rows});
      LinearFwd op{.x = x.view(), .w = dense_weight(w.view()), .y = y.mut()};
      reference(op);
      op.x = on_gpu(x.view());
      op.w = dense_weight(on_gpu(w.view()));
      op.y = result(DType::f32, {s.tokens, s.rows});
      launch(op);
      near(back(op.y), to_doubles(y.view()), 1e-4);
    }
  }
}

TEST_F(CudaTest, Norm) {
  for (const int64_t width : {int64_t{2688}, int64_t{80}, int64_t{1}}) {
    const Tensor x = random(DType::f32, {19, width}), w = random(DType::f32, {width});
    Tensor y(arena_, DType::f32, {19, width});
    RmsNormFwd op{.x = x.view(), .w = w.view(), .y = y.mut()};
    reference(op);
    op.x = on_gpu(x.view());
    op.w = on_gpu(w.view());
    op.y = result(DType::f32, {19, width});
    launch(op);
    near(back(op.y), to_doubles(y.view()), 1e-5);
  }
}

TEST_F(CudaTest, OneTokenOfTheScan) {
  constexpr int64_t kHeads = 6, kGroups = 2;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const auto& [width, states] : {std::pair<int64_t, int64_t>{80, 128}, {64, 96}, {5, 33}}) {
      const int64_t tokens = 3;
      SeqMap seqs;
      for (int64_t i = 0; i < tokens; ++i) seqs.add(1, 0, i);
      const Tensor x = random(dtype, {tokens, kHeads, width}), b = random(dtype, {tokens, kGroups, states}),
                   c = random(dtype, {tokens, kGroups, states}), dt = random(dtype, {tokens, kHeads}, -3, 3),
                   dt_bias = random(DType::f32, {kHeads}), a_log = random(DType::f32, {kHeads}),
                   d_skip = random(DType::f32, {kHeads}), state = random(DType::f32, {tokens, kHeads, width, states});
      Tensor y(arena_, DType::f32, {tokens, kHeads, width});
      const MutView device_state = on_gpu(state.view());
      SsdStep op{.x = x.view(),
                 .b = b.view(),
                 .c = c.view(),
                 .dt = dt.view(),
                 .dt_bias = dt_bias.view(),
                 .a_log = a_log.view(),
                 .d_skip = d_skip.view(),
                 .state = state.mut(),
                 .y = y.mut(),
                 .seqs = &seqs,
                 .dt_min = 1e-3f,
                 .dt_max = 2.0f};
      reference(op);
      op.x = on_gpu(x.view());
      op.b = on_gpu(b.view());
      op.c = on_gpu(c.view());
      op.dt = on_gpu(dt.view());
      op.dt_bias = on_gpu(dt_bias.view());
      op.a_log = on_gpu(a_log.view());
      op.d_skip = on_gpu(d_skip.view());
      op.state = device_state;
      op.y = result(DType::f32, {tokens, kHeads, width});
      launch(op);
      near(back(op.y), to_doubles(y.view()), 1e-5);
      near(back(op.state), to_doubles(state.view()), 1e-5);
    }
  }
}

TEST_F(CudaTest, ARecordedPassRepeatsItsResult) {
  const Tensor x = random(DType::bf16, {4, 256}), w = random(DType::bf16, {128, 256}), n = random(DType::f32, {128});
  const MutView in = on_gpu(x.view()), middle = result(DType::f32, {4, 128}), out = result(DType::f32, {4, 128});
  const LinearFwd product{.x = in, .w = dense_weight(on_gpu(w.view())), .y = middle};
  const RmsNormFwd norm{.x = middle, .w = on_gpu(n.view()), .y = out};
  Ctx ctx{.arena = arena_, .gpu = gpu_.get()};
  GpuGraph graph;
  graph.record(*gpu_, [&] {
    run(ctx, product);
    run(ctx, norm);
  });
  for (int i = 0; i < 3; ++i) {
    gpu_->upload(random(DType::bf16, {4, 256}).view(), in);
    run(ctx, product);
    run(ctx, norm);
    const std::vector<double> direct = back(out);
    gpu_->upload(Tensor(arena_, DType::f32, {4, 128}).view(), out);
    graph.launch(*gpu_);
    EXPECT_EQ(back(out), direct);
  }
}

}  // namespace
}  // namespace braid
