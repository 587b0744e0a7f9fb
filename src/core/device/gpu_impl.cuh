// What a GpuRuntime is made of. For .cu files.
#pragma once
#include <map>
#include <optional>
#include <tuple>

#include "core/device/cuda_check.cuh"
#include "core/device/gpu_runtime.h"

namespace braid {

// cuBLASLt's choice for one shape, found once.
struct GpuProductKey {
  int64_t tokens, rows, depth, x_stride, w_stride, y_stride;
  DType in, out;
  uint32_t x_alignment, w_alignment, y_alignment;
  auto operator<=>(const GpuProductKey&) const = default;
};

// The shape of the main loop (kernels/linear/grouped_pipeline.h) for products with groups of one size: by its model, or
// measured.
struct GpuPipelineKey {
  int64_t tokens, groups, height, columns;
  DType out;
  auto operator<=>(const GpuPipelineKey&) const = default;
};

struct GpuRuntime::Impl {
  static constexpr int64_t kStaging = int64_t{8} << 20;     // bytes of each of two pinned pieces
  static constexpr int64_t kWorkspace = int64_t{64} << 20;  // of cuBLASLt

  int number = 0;
  cudaStream_t stream = nullptr;
  cublasLtHandle_t blas = nullptr;
  cusparseHandle_t sparse = nullptr;  // made by the first call of `cusparse`
  std::byte* workspace = nullptr;
  std::byte* staging[2] = {};
  cudaEvent_t staged[2] = {};  // the last copy out of each piece
  std::map<GpuProductKey, cublasLtMatmulAlgo_t> algorithms{};
  std::map<GpuPipelineKey, int> pipelines{};
  bool recording = false;
  std::optional<DevicePool> memory{};

  cusparseHandle_t cusparse();  // on `stream`

  explicit Impl(int device);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();

 private:
  void release();
};

}  // namespace braid
