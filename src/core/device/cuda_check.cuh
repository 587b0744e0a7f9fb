// Calls of CUDA, cuBLASLt and cuSPARSE whose failure is an Error. For .cu files.
#pragma once
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <cusparse.h>

#include "sys/error.h"

namespace braid {

inline void cuda_check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) fail_environment("GPU", {.what = what, .got = cudaGetErrorString(status)});
}
inline void cuda_check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) fail_environment("GPU", {.what = what, .got = cublasLtGetStatusString(status)});
}
inline void cuda_check(cusparseStatus_t status, const char* what) {
  if (status != CUSPARSE_STATUS_SUCCESS) fail_environment("GPU", {.what = what, .got = cusparseGetErrorString(status)});
}

}  // namespace braid
