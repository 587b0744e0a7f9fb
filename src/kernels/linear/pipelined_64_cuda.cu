// The pipelined main loop for groups of 64 rows.
#include "kernels/linear/pipelined_cuda.cuh"

namespace braid {

PipelineKernel pipelined_64(int index) { return pipelined::find<64>(index); }

}  // namespace braid
