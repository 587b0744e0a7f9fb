// Scores of nodes on a GPU. Bound by memory: forward reads x once, backward reads x and writes dx; all else is small.
// In forward a group of lanes has a node and head. In backward a block has a slab of rows and some channels, each
// thread 16 bytes of them; the slabs depend on the number of rows alone and their sums are added in their order.
#include "core/device/cuda_check.cuh"
#include "core/device/gpu_runtime.h"
#include "kernels/gat/gat_cuda.cuh"
#include "kernels/gat/gat_rows.h"

namespace braid {
namespace {

constexpr int kNodes = 4;  // that a group of lanes takes at once, so that their reads overlap

template <int kVec, class X>
__global__ void __launch_bounds__(kGatThreads)
    scores_fwd_kernel(const X* x, int64_t x_stride, const float* a_src, const float* a_dst, float* right, float* left,
                      int64_t nodes, int heads, int64_t part, int group) {
  const int64_t task = int64_t{blockIdx.x} * (kGatThreads / group) + static_cast<int>(threadIdx.x) / group;
  const int64_t quad = quotient(task, heads), node = quad * kNodes, head = task - quad * heads;
  float src[kNodes] = {}, dst[kNodes] = {};
  for (int64_t c = static_cast<int>(threadIdx.x) % group * kVec; c < part; c += int64_t{group} * kVec) {
    float v[kNodes][kVec], s[kVec], d[kVec];
#pragma unroll
    for (int k = 0; k < kNodes; ++k)
      if (node + k < nodes) read<kVec>(x + (node + k) * x_stride + head * part + c, v[k]);
    read<kVec>(a_src + head * part + c, s);
    read<kVec>(a_dst + head * part + c, d);
#pragma unroll
    for (int k = 0; k < kNodes; ++k) {
      if (node + k >= nodes) continue;
#pragma unroll
      for (int n = 0; n < kVec; ++n) src[k] = fmaf(s[n], v[k][n], src[k]), dst[k] = fmaf(d[n], v[k][n], dst[k]);
    }
  }
  const int lane = static_cast<int>(threadIdx.x) % group;
  if (group >= kNodes) {
    const int k = lane / (group / kNodes);  // the node whose sum this lane gets
    const float right_sum = sum_of_four(src, group), left_sum = sum_of_four(dst, group);
    if (lane % (group / kNodes) == 0 && node + k < nodes) {
      right[(node + k) * heads + head] = right_sum;
      left[(node + k) * heads + head] = left_sum;
    }
    return;
  }
#pragma unroll
  for (int k = 0; k < kNodes; ++k) {
    src[k] = group_sum(src[k], group);
    dst[k] = group_sum(dst[k], group);
    const int64_t own = (node + k) * heads + head;
    if (node + k < nodes && lane == 0) right[own] = src[k], left[own] = dst[k];
  }
}

template <class X>
struct BackwardArgs {
  const X* x;
  int64_t x_stride;
  const float *dright, *dleft, *a_src, *a_dst;
  float* dx;
  int64_t dx_stride;
  float* sums;  // [slabs, 2, D]
  int64_t rows, slab, width, part;
  int heads, lanes;  // lanes: threads beside each other along the channels
};

template <int kVec, class X>
__global__ void __launch_bounds__(kGatThreads) scores_bwd_kernel(BackwardArgs<X> a) {
  __shared__ float all[kGatThreads][2][kVec];
  const int lane = static_cast<int>(threadIdx.x) % a.lanes, tall = kGatThreads / a.lanes;
  const int64_t c = (int64_t{blockIdx.y} * a.lanes + lane) * kVec;
  float src[kVec] = {}, dst[kVec] = {};
  if (c < a.width) {
    const int64_t h = c / a.part, last = min(a.rows, (int64_t{blockIdx.x} + 1) * a.slab);
    float a_src[kVec], a_dst[kVec];
    read<kVec>(a.a_src + c, a_src);
    read<kVec>(a.a_dst + c, a_dst);
#pragma unroll 4
    for (int64_t t = blockIdx.x * a.slab + static_cast<int>(threadIdx.x) / a.lanes; t < last; t += tall) {
      float x[kVec], dx[kVec];
      read<kVec>(a.x + t * a.x_stride + c, x);
      const float dright = __ldg(a.dright + t * a.heads + h), dleft = __ldg(a.dleft + t * a.heads + h);
#pragma unroll
      for (int n = 0; n < kVec; ++n) {
        dx[n] = dright * a_src[n] + dleft * a_dst[n];
        src[n] = fmaf(dright, x[n], src[n]);
        dst[n] = fmaf(dleft, x[n], dst[n]);
      }
      write<kVec>(a.dx + t * a.dx_stride + c, dx);
    }
  }
#pragma unroll
  for (int n = 0; n < kVec; ++n) all[threadIdx.x][0][n] = src[n], all[threadIdx.x][1][n] = dst[n];
  __syncthreads();
  if (static_cast<int>(threadIdx.x) >= a.lanes || c >= a.width) return;
  float* own = a.sums + int64_t{blockIdx.x} * 2 * a.width + c;
#pragma unroll
  for (int which = 0; which < 2; ++which) {
#pragma unroll
    for (int n = 0; n < kVec; ++n) {
      float sum = 0;
      for (int t = 0; t < tall; ++t) sum += all[t * a.lanes + lane][which][n];
      own[which * a.width + n] = sum;
    }
  }
}

// Adds the sums of all slabs to da_src and da_dst: a block has 32 channels, a warp every 32nd slab.
__global__ void __launch_bounds__(kWarpLanes* kWarpLanes)
    add_slabs(const float* sums, int64_t slabs, int64_t width, float* da_src, float* da_dst) {
  __shared__ float all[kWarpLanes][kWarpLanes];
  const int lane = lane_of_thread(), warp = warp_of_thread();
  const int64_t c = int64_t{blockIdx.x} * kWarpLanes + lane;
  float sum = 0;
  if (c < 2 * width) {
#pragma unroll 8
    for (int64_t s = warp; s < slabs; s += kWarpLanes) sum += __ldg(sums + s * 2 * width + c);
  }
  all[warp][lane] = sum;
  __syncthreads();
  if (warp > 0 || c >= 2 * width) return;
  for (int w = 1; w < kWarpLanes; ++w) sum += all[w][lane];
  float* to = c < width ? da_src + c : da_dst + (c - width);
  *to += sum;
}

template <class X>
void forward(Ctx& ctx, const GatScoresFwd& op) {
  constexpr int kVec = 16 / static_cast<int>(sizeof(X));
  const int64_t heads = op.left.dim(1), part = op.x.dim(1) / heads, nodes = op.x.dim(0);
  const bool vectors = part % kVec == 0 && vectors_fit(kVec, {op.x, op.a_src, op.a_dst});
  const int group = gat_group(part, vectors ? kVec : 1);
  const int64_t tasks = (nodes + kNodes - 1) / kNodes * heads, own = kGatThreads / group;
  const auto go = [&](auto* kernel) {
    kernel<<<static_cast<unsigned>((tasks + own - 1) / own), kGatThreads, 0,
             static_cast<cudaStream_t>(ctx.gpu->stream())>>>(
        reinterpret_cast<const X*>(op.x.data), op.x.stride(0), op.a_src.as<float>(), op.a_dst.as<float>(),
        op.right.as<float>(), op.left.as<float>(), nodes, static_cast<int>(heads), part, group);
  };
  vectors ? go(&scores_fwd_kernel<kVec, X>) : go(&scores_fwd_kernel<1, X>);
  cuda_check(cudaGetLastError(), "gat_scores_fwd cannot be launched");
}

template <class X>
void backward(Ctx& ctx, const GatScoresBwd& op) {
  constexpr int kVec = 16 / static_cast<int>(sizeof(X));
  constexpr int64_t kSlabs = 1024, kRows = 16;  // enough blocks to fill a GPU; rows at least, so that sums are few
  const int64_t rows = op.x.dim(0), width = op.x.dim(1), heads = op.dleft.dim(1), part = width / heads;
  const bool vectors = part % kVec == 0 && vectors_fit(kVec, {op.x, op.a_src, op.a_dst, op.dx});
  const int vec = vectors ? kVec : 1;
  const int64_t slab = std::max(kRows, (rows + kSlabs - 1) / kSlabs), slabs = (rows + slab - 1) / slab;
  int lanes = kWarpLanes / 8;
  while (lanes < 2 * kWarpLanes && int64_t{lanes} * vec < width) lanes *= 2;
  const PoolBlock scratch(ctx.gpu->memory(), slabs * 2 * width * static_cast<int64_t>(sizeof(float)));
  const BackwardArgs<X> a{.x = reinterpret_cast<const X*>(op.x.data),
                          .x_stride = op.x.stride(0),
                          .dright = op.dright.as<float>(),
                          .dleft = op.dleft.as<float>(),
                          .a_src = op.a_src.as<float>(),
                          .a_dst = op.a_dst.as<float>(),
                          .dx = op.dx.as<float>(),
                          .dx_stride = op.dx.stride(0),
                          .sums = reinterpret_cast<float*>(scratch.data()),
                          .rows = rows,
                          .slab = slab,
                          .width = width,
                          .part = part,
                          .heads = static_cast<int>(heads),
                          .lanes = lanes};
  const int64_t columns = (width + int64_t{lanes} * vec - 1) / (int64_t{lanes} * vec);
  const dim3 grid(static_cast<unsigned>(slabs), static_cast<unsigned>(columns));
  auto* stream = static_cast<cudaStream_t>(ctx.gpu->stream());
  if (vectors) {
    scores_bwd_kernel<kVec><<<grid, kGatThreads, 0, stream>>>(a);
  } else {
    scores_bwd_kernel<1><<<grid, kGatThreads, 0, stream>>>(a);
  }
  cuda_check(cudaGetLastError(), "gat_scores_bwd cannot be launched");
  add_slabs<<<static_cast<unsigned>((2 * width + kWarpLanes - 1) / kWarpLanes), kWarpLanes * kWarpLanes, 0, stream>>>(
      a.sums, slabs, width, op.da_src.as<float>(), op.da_dst.as<float>());
  cuda_check(cudaGetLastError(), "gat_scores_bwd cannot add its sums");
}

}  // namespace

void gat_scores_fwd_cuda(Ctx& ctx, const GatScoresFwd& op, std::span<std::byte>) {
  if (op.x.count() == 0) return;
  op.x.dtype == DType::bf16 ? forward<__nv_bfloat16>(ctx, op) : forward<float>(ctx, op);
}

void gat_scores_bwd_cuda(Ctx& ctx, const GatScoresBwd& op, std::span<std::byte>) {
  if (op.x.count() == 0) return;
  op.x.dtype == DType::bf16 ? backward<__nv_bfloat16>(ctx, op) : backward<float>(ctx, op);
}

}  // namespace braid
