#include "comm/nccl_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "sys/error.h"

namespace braid::comm {
namespace {

constexpr const char* kNcclHint =
    "apt-get install libnccl2 from NVIDIA's repository, or pip install nvidia-nccl-cu13 and LD_LIBRARY_PATH with its "
    "folder nvidia/nccl/lib";
constexpr const char* kCudaHint =
    "apt-get install cuda-cudart-13-0 from NVIDIA's repository, or LD_LIBRARY_PATH with the folder that has it, "
    "/usr/local/cuda/lib64 as a rule";

template <class Pointer>
void load_nccl(void* library, const char* name, Pointer& to) {
  to = reinterpret_cast<Pointer>(dlsym(library, name));
  if (!to)
    fail("comm nccl",
         {.what = "the library is not NCCL 2.14 or later", .got = fmt::format("no {}", name), .hint = kNcclHint});
}

template <class Pointer>
void load_cuda(void* library, const char* name, Pointer& to) {
  to = reinterpret_cast<Pointer>(dlsym(library, name));
  if (!to)
    fail("comm nccl",
         {.what = "the library is not a CUDA runtime", .got = fmt::format("no {}", name), .hint = kCudaHint});
}

void* cuda_beside(void* nccl) {
  if (dlsym(nccl, "cudaGetDeviceCount")) return nccl;
  for (const char* file : {"libcudart.so.13", "libcudart.so.12"}) {
    if (void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  fail("comm nccl", {.what = "the CUDA runtime is not installed",
                     .got = "no libcudart.so.13 and no libcudart.so.12",
                     .hint = kCudaHint});
}

}  // namespace

NcclLibrary::NcclLibrary(const std::string& file) {
  void* nccl = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!nccl) fail("comm nccl", {.what = "NCCL is not installed", .got = printable(dlerror()), .hint = kNcclHint});
  load_nccl(nccl, "ncclGetUniqueId", get_unique_id);
  load_nccl(nccl, "ncclCommInitRankConfig", init_rank);
  load_nccl(nccl, "ncclCommFinalize", finalize);
  load_nccl(nccl, "ncclCommDestroy", destroy);
  load_nccl(nccl, "ncclCommAbort", abort);
  load_nccl(nccl, "ncclCommGetAsyncError", async_error);
  load_nccl(nccl, "ncclGetErrorString", error_string);
  load_nccl(nccl, "ncclGetLastError", last_error);
  load_nccl(nccl, "ncclGroupStart", group_start);
  load_nccl(nccl, "ncclGroupEnd", group_end);
  load_nccl(nccl, "ncclBroadcast", broadcast);
  load_nccl(nccl, "ncclReduce", reduce);
  load_nccl(nccl, "ncclAllReduce", all_reduce);
  load_nccl(nccl, "ncclAllGather", all_gather);
  load_nccl(nccl, "ncclReduceScatter", reduce_scatter);
  load_nccl(nccl, "ncclSend", send);
  load_nccl(nccl, "ncclRecv", recv);
  void* cuda = cuda_beside(nccl);
  load_cuda(cuda, "cudaGetDeviceCount", device_count);
  load_cuda(cuda, "cudaSetDevice", set_device);
  load_cuda(cuda, "cudaDeviceGetPCIBusId", bus_id);
  load_cuda(cuda, "cudaMalloc", malloc);
  load_cuda(cuda, "cudaFree", free);
  load_cuda(cuda, "cudaHostAlloc", host_alloc);
  load_cuda(cuda, "cudaFreeHost", free_host);
  load_cuda(cuda, "cudaMemcpyAsync", copy_async);
  load_cuda(cuda, "cudaStreamCreateWithFlags", stream_create);
  load_cuda(cuda, "cudaStreamDestroy", stream_destroy);
  load_cuda(cuda, "cudaEventCreateWithFlags", event_create);
  load_cuda(cuda, "cudaEventDestroy", event_destroy);
  load_cuda(cuda, "cudaEventRecord", event_record);
  load_cuda(cuda, "cudaEventQuery", event_query);
  load_cuda(cuda, "cudaGetErrorString", cuda_error_string);
}

std::string NcclLibrary::cuda_text(int code) const { return fmt::format("{} ({})", cuda_error_string(code), code); }

std::string NcclLibrary::nccl_text(int code, NcclHandle comm) const {
  const char* last = last_error(comm);
  const bool says = last && *last != 0;
  return printable(fmt::format("{} ({}){}{}", error_string(code), code, says ? ": " : "", says ? last : ""));
}

void NcclLibrary::check_cuda(int code, const char* what) const {
  if (code == kCudaSuccess) return;
  fail_environment("comm nccl", {.what = fmt::format("{} failed", what), .got = cuda_text(code)});
}

}  // namespace braid::comm
