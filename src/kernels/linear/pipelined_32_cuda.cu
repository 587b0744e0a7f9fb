// The pipelined main loop for groups of 32 rows.
#include "kernels/linear/pipelined_cuda.cuh"

namespace braid {

PipelineKernel pipelined_32(int index) { return pipelined::find<32>(index); }

}  // namespace braid
