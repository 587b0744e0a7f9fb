// Products with groups of rows on a GPU: the steps around the pipelined main loop. Transposes pass through tiles in
// shared memory; they read and write each number once.
#include <algorithm>

#include "core/device/cuda_check.cuh"
#include "core/device/gpu_impl.cuh"
#include "kernels/linear/grouped_gpu.h"
#include "kernels/linear/grouped_launch.cuh"
#include "kernels/linear/linear_rows.h"
#include "sys/check.h"

namespace braid {
namespace {

constexpr int64_t kTokensAtOnce = 16384;  // bounds the scratch

// in [rows, cols] to out [cols, out_cols]; out_cols may exceed rows, with zeros. Warps read and write words of 4 bytes,
// or of one element where rows are not aligned to that.
template <class Element>
struct Transpose {
  static constexpr int kPer = 4 / sizeof(Element), kSide = 32 * kPer, kWarps = 8;
  const Element* in;
  Element* out;
  int64_t in_stride, out_stride, rows, cols, out_cols;
  bool words_in, words_out;
};

template <class Element>
__global__ void transpose_kernel(Transpose<Element> t) {
  using T = Transpose<Element>;
  constexpr int kPer = T::kPer, kSide = T::kSide;
  __shared__ __align__(4) Element tile[kSide][kSide + kPer];
  const int64_t first_row = int64_t{blockIdx.y} * kSide, first_col = int64_t{blockIdx.x} * kSide;
  const int lane = static_cast<int>(threadIdx.x) * kPer;
  for (int i = static_cast<int>(threadIdx.y); i < kSide; i += T::kWarps) {
    const int64_t row = first_row + i, col = first_col + lane;
    const Element* from = t.in + row * t.in_stride + col;
    if (t.words_in && row < t.rows && col + kPer <= t.cols) {
      *reinterpret_cast<uint32_t*>(&tile[i][lane]) = *reinterpret_cast<const uint32_t*>(from);
    } else {
      for (int e = 0; e < kPer; ++e) tile[i][lane + e] = row < t.rows && col + e < t.cols ? from[e] : Element{};
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.y); i < kSide; i += T::kWarps) {
    const int64_t row = first_col + i, col = first_row + lane;
    if (row >= t.cols) break;
    Element* to = t.out + row * t.out_stride + col;
    if (t.words_out && col + kPer <= t.out_cols) {
      __align__(4) Element word[kPer];
      for (int e = 0; e < kPer; ++e) word[e] = tile[lane + e][i];
      *reinterpret_cast<uint32_t*>(to) = *reinterpret_cast<const uint32_t*>(word);
    } else {
      for (int e = 0; e < kPer; ++e) {
        if (col + e < t.out_cols) to[e] = tile[lane + e][i];
      }
    }
  }
}

template <class Element>
void transpose(Transpose<Element> t, cudaStream_t stream) {
  using T = Transpose<Element>;
  const auto aligned = [](const void* data, int64_t stride) {
    return reinterpret_cast<uintptr_t>(data) % 4 == 0 && stride % T::kPer == 0;
  };
  t.words_in = aligned(t.in, t.in_stride);
  t.words_out = aligned(t.out, t.out_stride);
  const auto tiles = [](int64_t n) { return static_cast<unsigned>((n + T::kSide - 1) / T::kSide); };
  transpose_kernel<<<dim3(tiles(t.cols), tiles(t.out_cols)), dim3(32, T::kWarps), 0, stream>>>(t);
  cuda_check(cudaGetLastError(), "a transpose cannot be launched");
}

PipelineKernel kernel_of(int pipeline) {
  switch (kPipelines[static_cast<size_t>(pipeline)].height) {
    case 16:
      return pipelined_16(pipeline);
    case 32:
      return pipelined_32(pipeline);
    case 64:
      return pipelined_64(pipeline);
    default:
      return pipelined_128(pipeline);
  }
}

void check_groups_on_gpu(const LinearGroupedFwd& op) {
  const GroupedView& w = op.groups;
  CHECK(w && w.rows == op.y.dim(1) && w.cols == op.x.dim(1), "groups of {} x {}, {} x {}", w.rows, w.cols, op.y.dim(1),
        op.x.dim(1));
  for (const View& part : {w.row_of, w.begin, w.columns, w.values, w.order})
    CHECK(part.device == Device::cuda, "groups that are not on the GPU");
}

GpuPipelineKey key_of(const LinearGroupedFwd& op) {
  return {op.x.dim(0), op.groups.groups(), op.groups.height, op.groups.columns.dim(0), op.y.dtype};
}

}  // namespace

GroupedLaunch::GroupedLaunch(GpuRuntime& gpu, const LinearGroupedFwd& op)
    : gpu_(gpu),
      op_(op),
      args_{.order = op.groups.order.as<int32_t>(),
            .row_of = op.groups.row_of.as<int32_t>(),
            .begin = op.groups.begin.as<int64_t>(),
            .columns = op.groups.columns.as<int32_t>(),
            .values = reinterpret_cast<const __nv_bfloat16*>(op.groups.values.data),
            .bias = op.bias ? op.bias.as<float>() : nullptr,
            .stride = (op.x.dim(0) + 7) / 8 * 8,
            .wide = op.y.dtype == DType::f32},
      x_(gpu.memory(), std::max<int64_t>(16, op.groups.cols * args_.stride * 2)),
      y_(gpu.memory(), op.groups.rows * args_.stride * size_of(op.y.dtype)) {
  args_.x = reinterpret_cast<const __nv_bfloat16*>(x_.data());
  args_.y = y_.data();
}

void GroupedLaunch::transpose_x() const {
  if (op_.x.dim(1) == 0) return;
  transpose<uint16_t>({.in = reinterpret_cast<const uint16_t*>(op_.x.data),
                       .out = reinterpret_cast<uint16_t*>(x_.data()),
                       .in_stride = op_.x.stride(0),
                       .out_stride = args_.stride,
                       .rows = op_.x.dim(0),
                       .cols = op_.x.dim(1),
                       .out_cols = args_.stride},
                      static_cast<cudaStream_t>(gpu_.stream()));
}

void GroupedLaunch::main_loop(int pipeline) const {
  const Pipeline& p = kPipelines[static_cast<size_t>(pipeline)];
  CHECK(p.height == op_.groups.height, "a pipeline of {} rows for groups of {}", p.height, op_.groups.height);
  const PipelineKernel kernel = kernel_of(pipeline);
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, p.shared_bytes()),
             "too little shared memory for a pipeline");
  const dim3 blocks(static_cast<unsigned>(op_.groups.groups()),
                    static_cast<unsigned>((op_.x.dim(0) + p.tokens - 1) / p.tokens));
  kernel<<<blocks, static_cast<unsigned>(p.threads()), static_cast<size_t>(p.shared_bytes()),
           static_cast<cudaStream_t>(gpu_.stream())>>>(args_);
  cuda_check(cudaGetLastError(), "a pipeline cannot be launched");
}

void GroupedLaunch::transpose_y() const {
  const auto run = [&](auto* out) {
    using Element = std::remove_pointer_t<decltype(out)>;
    transpose<Element>({.in = reinterpret_cast<const Element*>(y_.data()),
                        .out = out,
                        .in_stride = args_.stride,
                        .out_stride = op_.y.stride(0),
                        .rows = op_.y.dim(1),
                        .cols = op_.y.dim(0),
                        .out_cols = op_.y.dim(1)},
                       static_cast<cudaStream_t>(gpu_.stream()));
  };
  if (args_.wide)
    run(reinterpret_cast<float*>(op_.y.data));
  else
    run(reinterpret_cast<uint16_t*>(op_.y.data));
}

GpuLimits limits_of(const GpuRuntime& gpu) {
  GpuLimits limits;
  int device = 0, shared = 0, of_block = 0, registers = 0, khz = 0;
  cuda_check(cudaGetDevice(&device), "no device");
  const auto read = [&](int& value, cudaDeviceAttr attribute) {
    cuda_check(cudaDeviceGetAttribute(&value, attribute, device), "an attribute cannot be read");
  };
  read(limits.units, cudaDevAttrMultiProcessorCount);
  read(limits.unit_threads, cudaDevAttrMaxThreadsPerMultiProcessor);
  read(limits.unit_blocks, cudaDevAttrMaxBlocksPerMultiprocessor);
  read(shared, cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  read(of_block, cudaDevAttrMaxSharedMemoryPerBlockOptin);
  read(registers, cudaDevAttrMaxRegistersPerMultiprocessor);
  read(khz, cudaDevAttrClockRate);
  limits.unit_shared_bytes = shared;
  limits.block_shared_bytes = of_block;
  limits.unit_registers = registers;
  limits.clock_ghz = 1e-6 * khz;
  return limits;
}

int counted_blocks(int pipeline) {
  const Pipeline& p = kPipelines[static_cast<size_t>(pipeline)];
  const PipelineKernel kernel = kernel_of(pipeline);
  int blocks = 0;
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, p.shared_bytes()),
             "too little shared memory for a pipeline");
  cuda_check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, p.threads(),
                                                           static_cast<size_t>(p.shared_bytes())),
             "blocks cannot be counted");
  return blocks;
}

PipelineProblem problem_of(const LinearGroupedFwd& op) {
  return {.tokens = op.x.dim(0),
          .groups = op.groups.groups(),
          .height = op.groups.height,
          .columns = op.groups.columns.dim(0),
          .cols = op.groups.cols,
          .out_bytes = size_of(op.y.dtype)};
}

int& pipeline_of(GpuRuntime& gpu, const LinearGroupedFwd& op) {
  auto& known = gpu.impl().pipelines;
  auto found = known.find(key_of(op));
  if (found == known.end()) {
    const std::vector<int> ranked = ranked_pipelines(problem_of(op), limits_of(gpu));
    if (ranked.empty()) fail_environment("GPU", {.what = "too little shared memory for products with groups of rows"});
    found = known.emplace(key_of(op), ranked[0]).first;
  }
  return found->second;
}

void use_pipeline(GpuRuntime& gpu, const LinearGroupedFwd& op, int pipeline) { pipeline_of(gpu, op) = pipeline; }

void linear_grouped_fwd_cuda(Ctx& ctx, const LinearGroupedFwd& op, std::span<std::byte>) {
  check_groups_on_gpu(op);
  for (int64_t token = 0; token < op.x.dim(0); token += kTokensAtOnce) {
    const int64_t tokens = std::min(kTokensAtOnce, op.x.dim(0) - token);
    LinearGroupedFwd piece = op;
    piece.x = op.x.slice(0, token, tokens);
    piece.y = op.y.slice(0, token, tokens);
    const GroupedLaunch launch(*ctx.gpu, piece);
    launch.transpose_x();
    launch.main_loop(pipeline_of(*ctx.gpu, piece));
    launch.transpose_y();
  }
}

}  // namespace braid
