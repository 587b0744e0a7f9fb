// The pipelined main loop for groups of 128 rows.
#include "kernels/linear/pipelined_cuda.cuh"

namespace braid {

PipelineKernel pipelined_128(int index) { return pipelined::find<128>(index); }

}  // namespace braid
