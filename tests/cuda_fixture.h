// What tests of GPU rows share: fresh random numbers in every run (the seed is printed if one fails), memory of the
// GPU, outputs filled with NaN. Tests report that they are skipped without a GPU.
#pragma once
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/device/gpu.h"
#include "core/device/gpu_runtime.h"
#include "core/op.h"
#include "core/ref.h"

namespace braid {

class CudaTest : public testing::Test {
 protected:
  void SetUp() override {
    if (gpus().empty()) GTEST_SKIP() << "SKIPPED: no GPU on this machine";
    gpu_ = std::make_unique<GpuRuntime>();
    RecordProperty("seed", std::to_string(seed_));
  }
  void TearDown() override {
    drop();
    if (HasFailure()) std::printf("seed %u\n", seed_);
  }

  // Frees what `on_gpu` and `result` took.
  void drop() {
    for (std::byte* data : taken_) gpu_->memory().give_back(data);
    taken_.clear();
  }
  Tensor random(DType dtype, const Shape& shape, double low = -1, double high = 1) {
    Tensor t(arena_, dtype, shape);
    std::vector<double> values(static_cast<size_t>(shape.count()));
    for (double& v : values) v = std::uniform_real_distribution(low, high)(numbers_);
    store(t.mut(), values);
    return t;
  }
  MutView on_gpu(const View& host) {
    if (!host) return {};
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
  // Runs the row that is chosen, or the one named.
  template <class Op>
  void launch(const Op& op, const char* row = nullptr) {
    Ctx ctx{.arena = arena_, .gpu = gpu_.get()};
    if (row) ctx.forced_rows[Op::name] = row;
    run(ctx, op);
  }

  Arena arena_;
  std::unique_ptr<GpuRuntime> gpu_;
  std::vector<std::byte*> taken_;
  unsigned seed_ = static_cast<unsigned>(std::chrono::steady_clock::now().time_since_epoch().count());
  std::mt19937 numbers_{seed_};
};

}  // namespace braid
