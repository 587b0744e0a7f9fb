// Streams, memory, staging and recorded passes of a GPU.
#include <algorithm>
#include <cstring>

#include "core/device/gpu.h"
#include "core/device/gpu_impl.cuh"
#include "sys/check.h"

namespace braid {

std::vector<Gpu> gpus() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) return {};
  std::vector<Gpu> list;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp p;
    if (cudaGetDeviceProperties(&p, i) != cudaSuccess) continue;
    list.push_back({.number = i,
                    .name = p.name,
                    .major = p.major,
                    .minor = p.minor,
                    .units = p.multiProcessorCount,
                    .memory = static_cast<int64_t>(p.totalGlobalMem)});
  }
  return list;
}

GpuRuntime::Impl::Impl(int device) : number(device) {
  try {
    cuda_check(cudaSetDevice(number), "cannot be used");
    cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "no stream");
    cuda_check(cublasLtCreate(&blas), "no cuBLASLt");
    cuda_check(cudaMalloc(reinterpret_cast<void**>(&workspace), kWorkspace), "no workspace");
    for (int i = 0; i < 2; ++i) {
      cuda_check(cudaMallocHost(reinterpret_cast<void**>(&staging[i]), kStaging), "no pinned memory");
      cuda_check(cudaEventCreateWithFlags(&staged[i], cudaEventDisableTiming), "no event");
    }
  } catch (...) {
    release();
    throw;
  }
  memory.emplace(DevicePool::Backing{.take = [](int64_t bytes) -> std::byte* {
                                       void* data = nullptr;
                                       if (cudaMalloc(&data, static_cast<size_t>(bytes)) == cudaSuccess)
                                         return static_cast<std::byte*>(data);
                                       cudaGetLastError();  // the pool trims and retries
                                       return nullptr;
                                     },
                                     .give_back = [](std::byte* data) { cudaFree(data); }});
}

GpuRuntime::Impl::~Impl() {
  if (stream) cudaStreamSynchronize(stream);
  memory.reset();
  release();
}

void GpuRuntime::Impl::release() {
  for (int i = 0; i < 2; ++i) {
    if (staged[i]) cudaEventDestroy(staged[i]);
    if (staging[i]) cudaFreeHost(staging[i]);
  }
  if (workspace) cudaFree(workspace);
  if (sparse) cusparseDestroy(sparse);
  if (blas) cublasLtDestroy(blas);
  if (stream) cudaStreamDestroy(stream);
}

cusparseHandle_t GpuRuntime::Impl::cusparse() {
  if (sparse) return sparse;
  cuda_check(cusparseCreate(&sparse), "no cuSPARSE");
  cuda_check(cusparseSetStream(sparse, stream), "no cuSPARSE");
  return sparse;
}

GpuRuntime::GpuRuntime(int number) : impl_(std::make_unique<Impl>(number)) {}
GpuRuntime::~GpuRuntime() = default;

void* GpuRuntime::stream() const { return impl_->stream; }
DevicePool& GpuRuntime::memory() { return *impl_->memory; }
void GpuRuntime::synchronize() { cuda_check(cudaStreamSynchronize(impl_->stream), "a kernel failed"); }

void GpuRuntime::upload(const View& host, const MutView& device) {
  CHECK(host.bytes() == device.bytes() && host.contiguous() && device.contiguous(), "{} to {} bytes", host.bytes(),
        device.bytes());
  CHECK(!impl_->recording, "a recorded pass stages nothing");
  for (int64_t at = 0, piece = 0; at < host.bytes(); at += Impl::kStaging, piece = 1 - piece) {
    const auto bytes = static_cast<size_t>(std::min(Impl::kStaging, host.bytes() - at));
    cuda_check(cudaEventSynchronize(impl_->staged[piece]), "a copy failed");
    std::memcpy(impl_->staging[piece], host.data + at, bytes);
    cuda_check(cudaMemcpyAsync(device.data + at, impl_->staging[piece], bytes, cudaMemcpyHostToDevice, impl_->stream),
               "cannot copy");
    cuda_check(cudaEventRecord(impl_->staged[piece], impl_->stream), "cannot mark a copy");
  }
}

void GpuRuntime::download(const View& device, const MutView& host) {
  CHECK(host.bytes() == device.bytes() && host.contiguous() && device.contiguous(), "{} to {} bytes", device.bytes(),
        host.bytes());
  CHECK(!impl_->recording, "a recorded pass stages nothing");
  const int64_t total = host.bytes(), pieces = (total + Impl::kStaging - 1) / Impl::kStaging;
  const auto bytes_of = [&](int64_t i) {
    return static_cast<size_t>(std::min(Impl::kStaging, total - i * Impl::kStaging));
  };
  // A piece arrives while the previous one is copied out.
  for (int64_t i = 0; i <= pieces; ++i) {
    if (i < pieces) {
      cuda_check(cudaMemcpyAsync(impl_->staging[i % 2], device.data + i * Impl::kStaging, bytes_of(i),
                                 cudaMemcpyDeviceToHost, impl_->stream),
                 "cannot copy");
      cuda_check(cudaEventRecord(impl_->staged[i % 2], impl_->stream), "cannot mark a copy");
    }
    if (i == 0) continue;
    cuda_check(cudaEventSynchronize(impl_->staged[(i - 1) % 2]), "a copy failed");
    std::memcpy(host.data + (i - 1) * Impl::kStaging, impl_->staging[(i - 1) % 2], bytes_of(i - 1));
  }
}

GpuGraph::~GpuGraph() { release(); }

void GpuGraph::release() {
  if (executable_) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable_));
  executable_ = nullptr;
  for (std::byte* data : scratch_) gpu_->memory().give_back(data);
  scratch_.clear();
}

namespace {

// The blocks that `pass` freed, which no other pass gets.
std::vector<std::byte*> run_keeping_scratch(DevicePool& memory, sys::FunctionRef<void()> pass) {
  memory.begin_recording();
  try {
    pass();
  } catch (...) {
    for (std::byte* data : memory.end_recording()) memory.give_back(data);
    throw;
  }
  return memory.end_recording();
}

}  // namespace

void GpuGraph::record(GpuRuntime& gpu, sys::FunctionRef<void()> pass) {
  GpuRuntime::Impl& impl = gpu.impl();
  release();
  gpu_ = &gpu;
  for (std::byte* data : run_keeping_scratch(gpu.memory(), pass)) gpu.memory().give_back(data);
  gpu.synchronize();
  const int64_t requests = gpu.memory().requests();
  cudaGraph_t graph = nullptr;
  cuda_check(cudaStreamBeginCapture(impl.stream, cudaStreamCaptureModeThreadLocal), "cannot record");
  impl.recording = true;
  try {
    scratch_ = run_keeping_scratch(gpu.memory(), pass);
  } catch (...) {
    impl.recording = false;
    cudaStreamEndCapture(impl.stream, &graph);
    if (graph) cudaGraphDestroy(graph);
    throw;
  }
  impl.recording = false;
  cuda_check(cudaStreamEndCapture(impl.stream, &graph), "cannot end a recording");
  CHECK(gpu.memory().requests() == requests, "a recorded pass asked for memory");
  cudaGraphExec_t made = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&made, graph, 0);
  cudaGraphDestroy(graph);
  cuda_check(status, "cannot make a graph");
  executable_ = made;
}

void GpuGraph::launch(GpuRuntime& gpu) {
  CHECK(executable_, "nothing was recorded");
  cuda_check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable_), gpu.impl().stream), "cannot launch a graph");
}

}  // namespace braid
