// The steps of a product with groups of rows on a GPU: x transposed, the main loop of some shape (pipelined_cuda.cuh),
// y transposed. A kept column of x^T and a row of y^T are contiguous tokens, which is what the gather and the rows' own
// places need. For .cu files.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "core/device/gpu_runtime.h"
#include "kernels/linear/grouped_pipeline.h"
#include "kernels/linear/linear_grouped.h"

namespace braid {

struct PipelineArgs {
  const int32_t* order = nullptr;         // [groups]
  const int32_t* row_of = nullptr;        // [groups * height]
  const int64_t* begin = nullptr;         // [groups + 1]
  const int32_t* columns = nullptr;       // [n]
  const __nv_bfloat16* values = nullptr;  // [n, height]
  const __nv_bfloat16* x = nullptr;       // [K, stride]
  const float* bias = nullptr;            // [N] or null
  void* y = nullptr;                      // [N, stride] F32 where `wide`, else BF16
  int64_t stride = 0;                     // tokens, rounded up to eight
  bool wide = false;
};
using PipelineKernel = void (*)(PipelineArgs);

// The kernel of kPipelines[index]; null if its height is another. One file each, for the sake of the time to compile.
PipelineKernel pipelined_16(int index);
PipelineKernel pipelined_32(int index);
PipelineKernel pipelined_64(int index);
PipelineKernel pipelined_128(int index);

// One call, whose scratch it holds.
class GroupedLaunch {
 public:
  GroupedLaunch(GpuRuntime& gpu, const LinearGroupedFwd& op);
  GroupedLaunch(const GroupedLaunch&) = delete;
  GroupedLaunch& operator=(const GroupedLaunch&) = delete;

  void transpose_x() const;
  void main_loop(int pipeline) const;
  void transpose_y() const;

 private:
  GpuRuntime& gpu_;
  const LinearGroupedFwd& op_;
  PipelineArgs args_;
  PoolBlock x_, y_;  // transposed
};

PipelineProblem problem_of(const LinearGroupedFwd& op);
// The pipeline that runs a problem: the one of its table, or else the model's first.
int& pipeline_of(GpuRuntime& gpu, const LinearGroupedFwd& op);

}  // namespace braid
