// One GPU: a stream, a memory pool, pinned staging, products by cuBLASLt with algorithms that were measured once, and
// passes that are recorded and relaunched. CUDA types are hidden behind `Impl`: this includes no header of the toolkit.
// Exists in builds with BRAID_CUDA only.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

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

  // The same number of bytes, both contiguous. Host memory goes through pinned pieces: `upload` returns when the last
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

// A pass, recorded once: launching it costs one call and requests no memory. The memory it reads and writes must not
// move; what it takes from the pool for a while is its own until this ends, which must be before the runtime does.
// `record` first runs the pass unrecorded, so that products are measured and the pool has its memory.
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
  void release();

  void* executable_ = nullptr;  // a cudaGraphExec_t
  GpuRuntime* gpu_ = nullptr;
  std::vector<std::byte*> scratch_{};
};

}  // namespace braid
