#include "core/device/gpu.h"

namespace braid {

#ifndef BRAID_CUDA
std::vector<Gpu> gpus() { return {}; }
GpuRoofs measure_gpu_roofs(int) { return {}; }
#endif

}  // namespace braid
