// The rows of a sparse matrix that have more than `limit` edges, listed on the GPU. The first blocks of a launch take
// them one by one, those many times as long before the others, so that a hub is not what all wait for in the end. Their
// order changes from run to run, and no result with it. For .cu files.
#pragma once
#include <algorithm>
#include <cstdint>

#include "core/device/cuda_check.cuh"
#include "core/device/gpu_runtime.h"

namespace braid {

struct LongRowList {
  // In memory of the GPU: the numbers of hubs and of other long rows, and of the tasks taken so far.
  struct Counts {
    int hubs, others, taken;
  };
  Counts* counts;
  int64_t* rows;  // hubs from the front, others from the back
  int64_t room, limit;
  int blocks;  // the first of a launch, which share the long rows

  __device__ bool has(int64_t edges) const { return edges > limit; }
  // Does this block share the long rows? visit(row, part) for every one of its tasks, `parts` of them a row.
  template <class Visit>
  __device__ bool shared(int parts, Visit&& visit) const {
    __shared__ int next;
    if (static_cast<int64_t>(blockIdx.x) >= blocks) return false;
    const int hubs = counts->hubs, tasks = (hubs + counts->others) * parts;
    while (true) {
      if (threadIdx.x == 0) next = atomicAdd(&counts->taken, 1);
      __syncthreads();
      const int task = next, place = task / parts;
      __syncthreads();
      if (task >= tasks) return true;
      visit(place < hubs ? rows[place] : rows[room - 1 - (place - hubs)], task % parts);
    }
  }
  // The number of this warp among those of the other blocks.
  __device__ int64_t warp(int warps) const {
    return (static_cast<int64_t>(blockIdx.x) - blocks) * warps + threadIdx.x / 32;
  }
};

static __global__ void list_long_rows(const int64_t* rowptr, int64_t count, LongRowList list) {
  constexpr int64_t kHub = 8;  // times the limit
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const int64_t edges = rowptr[i + 1] - rowptr[i];
  if (!list.has(edges)) return;
  if (list.has(edges / kHub)) {
    list.rows[atomicAdd(&list.counts->hubs, 1)] = i;
  } else {
    list.rows[list.room - 1 - atomicAdd(&list.counts->others, 1)] = i;
  }
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
    list_.counts = reinterpret_cast<LongRowList::Counts*>(memory_);
    list_.rows = reinterpret_cast<int64_t*>(memory_ + kHead);
    list_.room = most;
    list_.blocks = static_cast<int>(std::min(kBlocks, most * parts));
    cuda_check(cudaMemsetAsync(memory_, 0, sizeof(LongRowList::Counts), stream), "counters cannot be zeroed");
    list_long_rows<<<static_cast<unsigned>((rows + 255) / 256), 256, 0, stream>>>(rowptr.as<int64_t>(), rows, list_);
    cuda_check(cudaGetLastError(), "list_long_rows cannot be launched");
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
