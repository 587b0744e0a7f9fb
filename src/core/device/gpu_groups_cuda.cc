// Groups of rows moved to the memory of a GPU in one block, with the order of the groups by their columns.
#include "core/device/gpu_groups.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>
#include <vector>

namespace braid {
namespace {

constexpr int64_t kAlign = 256;

int64_t padded(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

}  // namespace

GpuGroups::GpuGroups(GpuRuntime& gpu, const GroupedRows& host) : gpu_(&gpu), view_(host.view()) {
  const auto columns = [&](int32_t g) {
    return host.begin[static_cast<size_t>(g) + 1] - host.begin[static_cast<size_t>(g)];
  };
  std::vector<int32_t> order(static_cast<size_t>(host.groups()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return columns(a) > columns(b); });
  view_.order = view_of(order.data(), {host.groups()});
  const std::array<View*, 5> parts = {&view_.row_of, &view_.begin, &view_.columns, &view_.values, &view_.order};
  int64_t bytes = kAlign;  // also where there is nothing
  for (const View* part : parts) bytes += padded(part->bytes());
  data_ = gpu.memory().take(bytes);
  std::byte* at = data_;
  for (View* part : parts) {
    const MutView device(at, part->dtype, part->shape, Device::cuda);
    gpu.upload(*part, device);
    *part = device;
    at += padded(device.bytes());
  }
}

GpuGroups::GpuGroups(GpuGroups&& other) noexcept
    : gpu_(other.gpu_), data_(std::exchange(other.data_, nullptr)), view_(std::exchange(other.view_, {})) {}

GpuGroups::~GpuGroups() {
  if (data_) gpu_->memory().give_back(data_);
}

}  // namespace braid
