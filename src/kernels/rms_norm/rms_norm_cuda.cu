// RMSNorm on a GPU: one block per row, sum of squares by warp shuffles. Bound by copy bandwidth.
#include "core/device/cuda_check.cuh"
#include "core/device/gpu_runtime.h"
#include "kernels/rms_norm/rms_norm_rows.h"

namespace braid {
namespace {

constexpr int kThreads = 256;

__global__ void rms_norm_kernel(const float* x, const float* w, float* y, float* rstd, int64_t width, float eps) {
  __shared__ float partial[kThreads / 32];
  const float* row = x + blockIdx.x * width;
  float squares = 0;
  for (int64_t i = threadIdx.x; i < width; i += kThreads) squares += row[i] * row[i];
  for (int offset = 16; offset > 0; offset /= 2) squares += __shfl_xor_sync(~0u, squares, offset);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = squares;
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < kThreads / 32; ++i) sum += partial[i];
  const float r = rsqrtf(sum / static_cast<float>(width) + eps);
  for (int64_t i = threadIdx.x; i < width; i += kThreads) y[blockIdx.x * width + i] = row[i] * r * w[i];
  if (rstd && threadIdx.x == 0) rstd[blockIdx.x] = r;
}

}  // namespace

void rms_norm_fwd_cuda(Ctx& ctx, const RmsNormFwd& op, std::span<std::byte>) {
  if (op.x.dim(0) == 0) return;
  rms_norm_kernel<<<static_cast<unsigned>(op.x.dim(0)), kThreads, 0, static_cast<cudaStream_t>(ctx.gpu->stream())>>>(
      op.x.as<float>(), op.w.as<float>(), op.y.as<float>(), op.rstd ? op.rstd.as<float>() : nullptr, op.x.dim(1),
      op.eps);
  cuda_check(cudaGetLastError(), "rms_norm cannot be launched");
}

}  // namespace braid
