// Calls of CUDA and cuBLASLt whose failure is an Error. For .cu files.
#pragma once
#include <cublasLt.h>
#include <cuda_runtime.h>

#include "sys/error.h"

namespace braid {

inline void cuda_check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) fail_environment("GPU", {.what = what, .got = cudaGetErrorString(status)});
}
inline void cuda_check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) fail_environment("GPU", {.what = what, .got = cublasLtGetStatusString(status)});
}

}  // namespace braid
