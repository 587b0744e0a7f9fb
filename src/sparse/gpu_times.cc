#include "sparse/gpu_times.h"

#include "core/has_cuda.h"
#include "sys/error.h"

namespace braid::sparse {

#if !BRAID_CUDA
std::vector<GpuTime> times_on_gpu(Problem&, DType, int) {
  fail_environment("--device", {.what = "this build has no CUDA", .hint = "cmake --preset cuda"});
}
#endif

}  // namespace braid::sparse
