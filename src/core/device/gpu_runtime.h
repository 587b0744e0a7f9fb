// One GPU at work: a stream, memory that is kept, pinned staging, products by cuBLASLt with algorithms that were
// measured once, and passes that are recorded and launched again. What CUDA calls its own lies behind `Impl`: no header
// of the toolkit is seen from here. Exists in builds with BRAID_CUDA only.
#pragma once
#include <cstdint>
#include <memory>

#include "core/device/device_pool.h"
#include "core/view.h"
#include "sys/function_ref.h"

namespace braid {

class GpuRuntime {
 public:
  explicit GpuRuntime(int number = 0);  // Error when there is no such GPU
  GpuRuntime(const GpuRuntime&) = delete;
  GpuRuntime& operator=(const GpuRuntime&) = delete;
  ~GpuRuntime();

  void* stream() const;  // a cudaStream_t
  DevicePool& memory();
  void synchronize();

  // Bytes of the same count, both contiguous. Host memory goes through pinned pieces: `upload` returns when the last
  // has left the host's memory, `download` when all have arrived.
  void upload(const View& host, const MutView& device);
  void download(const View& device, const MutView& host);

  // y [T, N] = x [T, K] w [N, K]^T with FP32 sums: F32 or BF16 operands of one type, y F32 or BF16; or F8_E4M3 operands
  // and y BF16. Rows may be strided. The first product of a shape times the candidates of cuBLASLt and keeps the
  // fastest; inside a recording the first candidate is taken.
  void product(const View& x, const View& w, const MutView& y);

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// A pass, recorded once: launching it costs one call and asks for no memory. What it reads and writes must stay where
// it was; `record` runs the pass a first time outside of the recording, so that products are measured and memory is
// kept.
class GpuGraph {
 public:
  GpuGraph() = default;
  GpuGraph(const GpuGraph&) = delete;
  GpuGraph& operator=(const GpuGraph&) = delete;
  ~GpuGraph();

  void record(GpuRuntime& gpu, sys::FunctionRef<void()> pass);
  void launch(GpuRuntime& gpu);
  explicit operator bool() const { return executable_ != nullptr; }

 private:
  void* executable_ = nullptr;  // a cudaGraphExec_t
};

}  // namespace braid
