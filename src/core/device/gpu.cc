#include "core/device/gpu.h"

#include "core/has_cuda.h"

namespace braid {

#if !BRAID_CUDA
std::vector<Gpu> gpus() { return {}; }
GpuRoofs measure_gpu_roofs(int) { return {}; }
#endif

}  // namespace braid
