// The GPUs of this machine and their peak rates. A build without the CUDA toolkit, or a machine without a driver, has
// none.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace braid {

struct Gpu {
  int number = 0;
  std::string name{};
  int major = 0, minor = 0;  // compute capability
  int units = 0;             // streaming multiprocessors
  int64_t memory = 0;        // bytes
};

std::vector<Gpu> gpus();

// Measured in a few seconds: the roofs that speeds on a GPU are compared with.
struct GpuRoofs {
  double copy_gbs = 0;     // GB/s, read and written bytes together, of a device-to-device copy
  double bf16_tflops = 0;  // cuBLASLt, 8192 x 8192 x 8192, FP32 sums
  double fp8_tflops = 0;   // E4M3 x E4M3 -> BF16; 0 without such a unit
};
GpuRoofs measure_gpu_roofs(int number);

}  // namespace braid
