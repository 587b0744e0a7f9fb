// Groups of rows in a GPU's memory. Exists in builds with BRAID_CUDA only.
#pragma once
#include <cstddef>

#include "core/device/gpu_runtime.h"
#include "core/grouped_rows.h"

namespace braid {

class GpuGroups {
 public:
  GpuGroups(GpuRuntime& gpu, const GroupedRows& host);
  GpuGroups(const GpuGroups&) = delete;
  GpuGroups& operator=(const GpuGroups&) = delete;
  GpuGroups(GpuGroups&& other) noexcept;
  GpuGroups& operator=(GpuGroups&&) = delete;
  ~GpuGroups();

  const GroupedView& view() const { return view_; }

 private:
  GpuRuntime* gpu_;
  std::byte* data_ = nullptr;
  GroupedView view_;
};

}  // namespace braid
