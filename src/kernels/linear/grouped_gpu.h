// The choice of the main loop's shape on a GPU: the model's, unless one was measured or named. Exists in builds with
// BRAID_CUDA only.
#pragma once
#include "core/ctx.h"
#include "core/device/gpu_runtime.h"
#include "kernels/linear/grouped_pipeline.h"
#include "kernels/linear/linear_grouped.h"

namespace braid {

// Of the device, with an H200's rates.
GpuLimits limits_of(const GpuRuntime& gpu);

// Blocks of kPipelines[pipeline] that a unit of this GPU holds, as its driver counts them.
int counted_blocks(int pipeline);

// Products with as many tokens, groups and columns as this one take kPipelines[pipeline] from now on.
void use_pipeline(GpuRuntime& gpu, const LinearGroupedFwd& op, int pipeline);

// The same with the fastest of the `most` that the model ranks first, timed on this product's memory; y is overwritten.
// Returns its index.
int tune_pipeline(GpuRuntime& gpu, const LinearGroupedFwd& op, int most);

}  // namespace braid
