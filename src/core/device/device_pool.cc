#include "core/device/device_pool.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "sys/check.h"
#include "sys/error.h"

namespace braid {
namespace {

constexpr int64_t kSmallest = 512;
constexpr int64_t kLargest = int64_t{1} << 50;

}  // namespace

int64_t DevicePool::size_class(int64_t bytes) {
  bytes = std::max(bytes, kSmallest);
  const auto below = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes)));
  const int64_t step = std::max(below / 8, kSmallest / 8);
  return (bytes + step - 1) / step * step;
}

DevicePool::~DevicePool() { trim(); }

std::byte* DevicePool::take(int64_t bytes) {
  CHECK(bytes >= 0 && bytes <= kLargest, "{} bytes", bytes);
  const int64_t size = size_class(bytes);
  std::byte* data = nullptr;
  auto& from = recording_ && !kept_[size].empty() ? kept_[size] : idle_[size];
  if (!from.empty()) {
    data = from.back();
    from.pop_back();
  } else {
    ++requests_;
    data = backing_.take(size);
    if (!data) {
      trim();
      data = backing_.take(size);
    }
    if (!data) {
      fail_environment("GPU", {.what = "out of memory",
                               .got = fmt::format("{} bytes more, with {} in use", size, in_use_),
                               .hint = "a shorter context, a smaller batch or memory.recompute"});
    }
    held_ += size;
  }
  used_[data] = size;
  in_use_ += size;
  return data;
}

void DevicePool::give_back(std::byte* data) {
  const auto found = used_.find(data);
  CHECK(found != used_.end(), "{} is not of this pool", static_cast<void*>(data));
  in_use_ -= found->second;
  (recording_ ? kept_ : idle_)[found->second].push_back(data);
  used_.erase(found);
}

void DevicePool::begin_recording() {
  CHECK(!recording_, "a recording within a recording");
  recording_ = true;
}

std::vector<std::byte*> DevicePool::end_recording() {
  CHECK(recording_, "nothing is recorded");
  recording_ = false;
  std::vector<std::byte*> blocks;
  for (auto& [size, list] : kept_) {
    for (std::byte* data : list) {
      used_[data] = size;
      in_use_ += size;
      blocks.push_back(data);
    }
  }
  kept_.clear();
  return blocks;
}

void DevicePool::trim() {
  for (auto& [size, list] : idle_) {
    for (std::byte* data : list) {
      backing_.give_back(data);
      held_ -= size;
    }
    list.clear();
  }
}

}  // namespace braid
