// NCCL and the CUDA runtime, loaded when they are asked for, so that the program needs neither to be built nor to run.
// The declarations are ours: those of nccl.h since 2.14, which has communicators that do not block, and of CUDA 12
// and 13.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace braid::comm {

using NcclHandle = void*;  // a communicator
using CudaHandle = void*;  // a stream or an event

struct NcclUniqueId {
  std::array<char, 128> bytes{};
};
// The library reads as much of it as there was in the version that it names.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef, version = 21400;
  int blocking = 0;
};

constexpr int kNcclSuccess = 0, kNcclInProgress = 7;
enum class NcclType : int { u8 = 1, i32 = 2, i64 = 4, f16 = 6, f32 = 7, bf16 = 9 };
enum class NcclOp : int { sum = 0, max = 2, min = 3 };
constexpr int kCudaSuccess = 0, kCudaOutOfMemory = 2, kCudaNotReady = 600;
constexpr int kToDevice = 1, kToHost = 2;              // cudaMemcpyKind
constexpr unsigned kOwnStream = 1, kEventUntimed = 2;  // cudaStreamNonBlocking, cudaEventDisableTiming
constexpr unsigned kPinnedForAll = 1;                  // cudaHostAllocPortable

struct NcclLibrary {
  // Error when a library is missing or too old: one line that says what to install, bad input, which of several ranks
  // one alone reports (mpi.h). The CUDA runtime is the one that `file` brings, if it does, else libcudart.so.13 or .12.
  // Both stay loaded until the process ends. Nothing of CUDA begins by this, so that the process may still fork.
  explicit NcclLibrary(const std::string& file);

  int (*get_unique_id)(NcclUniqueId*) = nullptr;
  int (*init_rank)(NcclHandle*, int ranks, NcclUniqueId, int rank, NcclConfig*) = nullptr;
  int (*finalize)(NcclHandle) = nullptr;
  int (*destroy)(NcclHandle) = nullptr;
  int (*abort)(NcclHandle) = nullptr;
  int (*async_error)(NcclHandle, int*) = nullptr;
  const char* (*error_string)(int) = nullptr;
  const char* (*last_error)(NcclHandle) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*broadcast)(const void*, void*, size_t, NcclType, int root, NcclHandle, CudaHandle) = nullptr;
  int (*reduce)(const void*, void*, size_t, NcclType, NcclOp, int root, NcclHandle, CudaHandle) = nullptr;
  int (*all_reduce)(const void*, void*, size_t, NcclType, NcclOp, NcclHandle, CudaHandle) = nullptr;
  int (*all_gather)(const void*, void*, size_t, NcclType, NcclHandle, CudaHandle) = nullptr;
  int (*reduce_scatter)(const void*, void*, size_t, NcclType, NcclOp, NcclHandle, CudaHandle) = nullptr;
  int (*send)(const void*, size_t, NcclType, int peer, NcclHandle, CudaHandle) = nullptr;
  int (*recv)(void*, size_t, NcclType, int peer, NcclHandle, CudaHandle) = nullptr;

  int (*device_count)(int*) = nullptr;
  int (*set_device)(int) = nullptr;
  int (*bus_id)(char*, int bytes, int device) = nullptr;
  int (*malloc)(void**, size_t) = nullptr;
  int (*free)(void*) = nullptr;
  int (*host_alloc)(void**, size_t, unsigned) = nullptr;
  int (*free_host)(void*) = nullptr;
  int (*copy_async)(void*, const void*, size_t, int, CudaHandle) = nullptr;
  int (*stream_create)(CudaHandle*, unsigned) = nullptr;
  int (*stream_destroy)(CudaHandle) = nullptr;
  int (*event_create)(CudaHandle*, unsigned) = nullptr;
  int (*event_destroy)(CudaHandle) = nullptr;
  int (*event_record)(CudaHandle, CudaHandle) = nullptr;
  int (*event_query)(CudaHandle) = nullptr;
  const char* (*cuda_error_string)(int) = nullptr;

  // "no CUDA-capable device is detected (100)"
  std::string cuda_text(int code) const;
  // "unhandled system error (2): what the library says of it"; `comm` may be null.
  std::string nccl_text(int code, NcclHandle comm) const;
  void check_cuda(int code, const char* what) const;
};

}  // namespace braid::comm
