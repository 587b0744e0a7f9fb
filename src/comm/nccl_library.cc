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

// A library, what it is not where a name is missing, and what to install then.
struct Loaded {
  void* library;
  const char *wrong, *hint;

  template <class Pointer>
  void load(const char* name, Pointer& to) const {
    to = reinterpret_cast<Pointer>(dlsym(library, name));
    if (!to) fail("comm nccl", {.what = wrong, .got = fmt::format("no {}", name), .hint = hint});
  }
};

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
  const Loaded nccl{dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL), "the library is not NCCL 2.14 or later", kNcclHint};
  if (!nccl.library)
    fail("comm nccl", {.what = "NCCL is not installed", .got = printable(dlerror()), .hint = kNcclHint});
  nccl.load("ncclGetUniqueId", get_unique_id);
  nccl.load("ncclCommInitRankConfig", init_rank);
  nccl.load("ncclCommFinalize", finalize);
  nccl.load("ncclCommDestroy", destroy);
  nccl.load("ncclCommAbort", abort);
  nccl.load("ncclCommGetAsyncError", async_error);
  nccl.load("ncclGetErrorString", error_string);
  nccl.load("ncclGetLastError", last_error);
  nccl.load("ncclGroupStart", group_start);
  nccl.load("ncclGroupEnd", group_end);
  nccl.load("ncclBroadcast", broadcast);
  nccl.load("ncclReduce", reduce);
  nccl.load("ncclAllReduce", all_reduce);
  nccl.load("ncclAllGather", all_gather);
  nccl.load("ncclReduceScatter", reduce_scatter);
  nccl.load("ncclSend", send);
  nccl.load("ncclRecv", recv);
  const Loaded cuda{cuda_beside(nccl.library), "the library is not a CUDA runtime", kCudaHint};
  cuda.load("cudaGetDeviceCount", device_count);
  cuda.load("cudaSetDevice", set_device);
  cuda.load("cudaDeviceGetPCIBusId", bus_id);
  cuda.load("cudaMalloc", malloc);
  cuda.load("cudaFree", free);
  cuda.load("cudaHostAlloc", host_alloc);
  cuda.load("cudaFreeHost", free_host);
  cuda.load("cudaMemcpyAsync", copy_async);
  cuda.load("cudaStreamCreateWithFlags", stream_create);
  cuda.load("cudaStreamDestroy", stream_destroy);
  cuda.load("cudaEventCreateWithFlags", event_create);
  cuda.load("cudaEventDestroy", event_destroy);
  cuda.load("cudaEventRecord", event_record);
  cuda.load("cudaEventQuery", event_query);
  cuda.load("cudaGetErrorString", cuda_error_string);
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
