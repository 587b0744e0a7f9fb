// Time on a GPU. For .cu and _cuda.cc files.
#pragma once
#include "core/device/cuda_check.cuh"

namespace braid {

// Milliseconds between two events in a stream.
class GpuWatch {
 public:
  explicit GpuWatch(cudaStream_t stream) : stream_(stream) {
    for (cudaEvent_t& e : events_) cuda_check(cudaEventCreate(&e), "no event");
  }
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;
  ~GpuWatch() {
    for (cudaEvent_t e : events_) {
      if (e) cudaEventDestroy(e);
    }
  }
  void begin() { cuda_check(cudaEventRecord(events_[0], stream_), "no mark"); }
  float end() {
    float ms = 0;
    cuda_check(cudaEventRecord(events_[1], stream_), "no mark");
    cuda_check(cudaEventSynchronize(events_[1]), "a kernel failed");
    cuda_check(cudaEventElapsedTime(&ms, events_[0], events_[1]), "no time");
    return ms;
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t events_[2] = {};
};

}  // namespace braid
