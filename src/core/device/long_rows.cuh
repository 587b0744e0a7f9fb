// The rows of a sparse matrix that have more than `limit` edges, listed on the GPU, so that a block takes each of them
// and a hub delays nobody. Their order in the list changes from run to run and no result with it. For .cu files.
#pragma once
#include <algorithm>
#include <cstdint>

#include "core/device/cuda_check.cuh"
#include "core/device/gpu_runtime.h"

namespace braid {

struct LongRowList {
  const int* count;
  const int64_t* rows;
  int64_t limit;
  int blocks;  // the first of a launch, which share the long rows

  __device__ bool has(int64_t edges) const { return edges > limit; }
  // Does this block share the long rows? visit(row, part) for every one of its tasks, `parts` of them a row.
  template <class Visit>
  __device__ bool shared(int parts, Visit&& visit) const {
    if (static_cast<int64_t>(blockIdx.x) >= blocks) return false;
    const int64_t tasks = static_cast<int64_t>(*count) * parts;
    for (int64_t task = blockIdx.x; task < tasks; task += blocks)
      visit(rows[task / parts], static_cast<int>(task % parts));
    return true;
  }
  // The number of this warp among those of the other blocks.
  __device__ int64_t warp(int warps) const {
    return (static_cast<int64_t>(blockIdx.x) - blocks) * warps + threadIdx.x / 32;
  }
};

static __global__ void list_long_rows(const int64_t* rowptr, int64_t rows, int64_t limit, int* count, int64_t* list) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < rows && rowptr[i + 1] - rowptr[i] > limit) list[atomicAdd(count, 1)] = i;
}

// The list lies in the pool until the launches that read it are queued.
class LongRows {
 public:
  LongRows(GpuRuntime& gpu, const View& rowptr, int64_t edges, int64_t limit, int parts) : gpu_(gpu) {
    const int64_t most = edges / (limit + 1), rows = rowptr.dim(0) - 1;  // as many rows can be long
    list_.limit = limit;
    if (most == 0) return;
    constexpr int64_t kHead = 16, kBlocks = 1024;  // blocks: enough to fill a GPU several times
    auto* stream = static_cast<cudaStream_t>(gpu.stream());
    memory_ = gpu.memory().take(kHead + most * static_cast<int64_t>(sizeof(int64_t)));
    auto* count = reinterpret_cast<int*>(memory_);
    auto* list = reinterpret_cast<int64_t*>(memory_ + kHead);
    cuda_check(cudaMemsetAsync(count, 0, sizeof(int), stream), "a counter cannot be zeroed");
    list_long_rows<<<static_cast<unsigned>((rows + 255) / 256), 256, 0, stream>>>(rowptr.as<int64_t>(), rows, limit,
                                                                                  count, list);
    cuda_check(cudaGetLastError(), "list_long_rows cannot be launched");
    list_.count = count;
    list_.rows = list;
    list_.blocks = static_cast<int>(std::min(kBlocks, most * parts));
  }
  LongRows(const LongRows&) = delete;
  LongRows& operator=(const LongRows&) = delete;
  ~LongRows() {
    if (memory_) gpu_.memory().give_back(memory_);
  }
  const LongRowList& list() const { return list_; }
  // Of a launch in which a warp has each of `tasks` tasks.
  unsigned blocks(int64_t tasks, int warps) const {
    return static_cast<unsigned>(list_.blocks + (tasks + warps - 1) / warps);
  }

 private:
  GpuRuntime& gpu_;
  std::byte* memory_ = nullptr;
  LongRowList list_{};
};

}  // namespace braid
