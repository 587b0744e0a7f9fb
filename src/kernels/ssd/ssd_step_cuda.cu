// One token of every sequence on a GPU. Bound by memory: each state is read and written once, 8 bytes per number, and
// all else is small. A block has a token and a head; each warp takes rows of the state in turn, lanes run along the
// states, so that a row is one coalesced read, one write and a sum by shuffles.
#include <cuda_bf16.h>

#include "core/device/cuda_check.cuh"
#include "core/device/gpu_runtime.h"
#include "kernels/ssd/ssd_rows.h"

namespace braid {
namespace {

constexpr int kWarps = 8, kLanes = 32;

struct Shape4 {
  int64_t heads, width, groups, states;
  int64_t x_stride, b_stride, c_stride, dt_stride, y_stride;  // between tokens, in elements
};

__device__ float value(const float* p, int64_t i) { return p[i]; }
__device__ float value(const __nv_bfloat16* p, int64_t i) { return __bfloat162float(p[i]); }

template <class In, class Step>
__global__ void ssd_step_kernel(Shape4 s, const In* x, const In* b, const In* c, const Step* dt, const float* dt_bias,
                                const float* a_log, const float* d_skip, float* state, float* y, float dt_min,
                                float dt_max) {
  const int64_t head = blockIdx.x, token = blockIdx.y, group = head / (s.heads / s.groups);
  const int warp = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  const float before = value(dt, token * s.dt_stride + head) + dt_bias[head];
  const float softplus = before > 20.0f ? before : log1pf(expf(before));
  const float step = softplus < dt_min ? dt_min : softplus > dt_max ? dt_max : softplus;  // a NaN stays one
  const float decay = expf(-step * expf(a_log[head]));
  const In *bs = b + token * s.b_stride + group * s.states, *cs = c + token * s.c_stride + group * s.states;
  for (int64_t p = warp; p < s.width; p += kWarps) {
    const float in = value(x, token * s.x_stride + head * s.width + p);
    float* row = state + ((token * s.heads + head) * s.width + p) * s.states;
    float sum = 0;
    for (int64_t n = lane; n < s.states; n += kLanes) {
      const float next = decay * row[n] + step * in * value(bs, n);
      row[n] = next;
      sum += next * value(cs, n);
    }
    for (int offset = kLanes / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
    if (lane == 0) y[token * s.y_stride + head * s.width + p] = sum + d_skip[head] * in;
  }
}

template <class In, class Step>
void launch(Ctx& ctx, const SsdStep& op) {
  const Shape4 s{.heads = op.x.dim(1),
                 .width = op.x.dim(2),
                 .groups = op.b.dim(1),
                 .states = op.b.dim(2),
                 .x_stride = op.x.strides[0],
                 .b_stride = op.b.strides[0],
                 .c_stride = op.c.strides[0],
                 .dt_stride = op.dt.strides[0],
                 .y_stride = op.y.strides[0]};
  const dim3 blocks(static_cast<unsigned>(s.heads), static_cast<unsigned>(op.x.dim(0)));
  ssd_step_kernel<In, Step><<<blocks, kWarps * kLanes, 0, static_cast<cudaStream_t>(ctx.gpu->stream())>>>(
      s, reinterpret_cast<const In*>(op.x.data), reinterpret_cast<const In*>(op.b.data),
      reinterpret_cast<const In*>(op.c.data), reinterpret_cast<const Step*>(op.dt.data), op.dt_bias.as<float>(),
      op.a_log.as<float>(), op.d_skip.as<float>(), op.state.as<float>(), op.y.as<float>(), op.dt_min, op.dt_max);
  cuda_check(cudaGetLastError(), "ssd_step cannot be launched");
}

}  // namespace

void ssd_step_cuda(Ctx& ctx, const SsdStep& op, std::span<std::byte>) {
  if (op.x.dim(0) == 0) return;
  const bool half = op.x.dtype == DType::bf16, half_step = op.dt.dtype == DType::bf16;
  if (half && half_step) return launch<__nv_bfloat16, __nv_bfloat16>(ctx, op);
  if (half) return launch<__nv_bfloat16, float>(ctx, op);
  if (half_step) return launch<float, __nv_bfloat16>(ctx, op);
  launch<float, float>(ctx, op);
}

}  // namespace braid
