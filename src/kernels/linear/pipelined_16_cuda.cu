// The pipelined main loop for groups of 16 rows.
#include "kernels/linear/pipelined_cuda.cuh"

namespace braid {

PipelineKernel pipelined_16(int index) { return pipelined::find<16>(index); }

}  // namespace braid
