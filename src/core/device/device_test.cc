#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "core/device/device_pool.h"
#include "core/device/gpu.h"
#include "sys/error.h"

namespace braid {
namespace {

// A device of `room` bytes.
struct Fake {
  int64_t room = 0, taken = 0;
  std::map<std::byte*, int64_t> live{};

  DevicePool::Backing backing() {
    return {.take = [this](int64_t bytes) -> std::byte* {
              if (taken + bytes > room) return nullptr;
              auto* data = static_cast<std::byte*>(std::malloc(static_cast<size_t>(bytes)));
              live[data] = bytes;
              taken += bytes;
              return data;
            },
            .give_back =
                [this](std::byte* data) {
                  taken -= live.at(data);
                  live.erase(data);
                  std::free(data);
                }};
  }
};

TEST(DevicePool, SizeClassesWasteAnEighthAtMost) {
  for (int64_t bytes = 1; bytes < 5'000'000; bytes += 1 + bytes / 7) {
    const int64_t size = DevicePool::size_class(bytes);
    EXPECT_GE(size, bytes);
    EXPECT_LE(size, std::max<int64_t>(512, bytes + bytes / 8 + 1));
    EXPECT_EQ(DevicePool::size_class(size), size);
    EXPECT_EQ(size % 64, 0);
  }
}

TEST(DevicePool, TheSecondStepMakesNoDeviceRequests) {
  Fake device{.room = 1 << 24};
  {
    DevicePool pool(device.backing());
    int64_t after_first = 0;
    for (int step = 0; step < 3; ++step) {
      std::vector<std::byte*> taken;
      for (const int64_t bytes : {100, 4096, 70'000, 4000, 1'000'000, 0}) taken.push_back(pool.take(bytes));
      EXPECT_EQ(std::set<std::byte*>(taken.begin(), taken.end()).size(), taken.size());
      for (std::byte* data : taken) pool.give_back(data);
      if (step == 0) after_first = pool.requests();
    }
    EXPECT_EQ(pool.requests(), after_first);
    EXPECT_EQ(pool.bytes_in_use(), 0);
    EXPECT_EQ(pool.bytes_held(), device.taken);
  }
  EXPECT_EQ(device.taken, 0);
}

TEST(DevicePool, IdleMemoryOfOtherSizesIsFreedBeforeARequestFails) {
  Fake device{.room = 3 << 20};
  DevicePool pool(device.backing());
  pool.give_back(pool.take(2 << 20));
  std::byte* data = pool.take(int64_t{5} << 19);  // does not fit with the first
  EXPECT_EQ(pool.bytes_held(), pool.bytes_in_use());
  EXPECT_THROW(pool.take(1 << 20), Error);
  pool.give_back(data);
  std::byte* again = pool.take(1 << 20);
  pool.give_back(again);
}

// Its scratch is written again whenever it runs, so that nobody else may have it.
TEST(DevicePool, ARecordedPassKeepsItsScratch) {
  Fake device{.room = 1 << 20};
  DevicePool pool(device.backing());
  const auto pass = [&] {
    const PoolBlock first(pool, 4096);
    std::byte* const one = PoolBlock(pool, 1000).data();
    EXPECT_EQ(PoolBlock(pool, 1000).data(), one);  // within the pass it is free again
    return std::set{first.data(), one};
  };
  pass();
  const int64_t requests = pool.requests();
  pool.begin_recording();
  const std::set<std::byte*> scratch = pass();
  const std::vector<std::byte*> blocks = pool.end_recording();
  EXPECT_EQ(pool.requests(), requests);
  EXPECT_EQ(std::set(blocks.begin(), blocks.end()), scratch);
  EXPECT_EQ(pool.bytes_in_use(), DevicePool::size_class(4096) + DevicePool::size_class(1000));
  pool.trim();
  for (const int64_t bytes : {4096, 1000}) {
    const PoolBlock later(pool, bytes);
    EXPECT_FALSE(scratch.contains(later.data()));
  }
  for (std::byte* data : blocks) pool.give_back(data);
  EXPECT_TRUE(scratch.contains(PoolBlock(pool, 4096).data()));
}

TEST(Gpu, IsKnownOrAbsent) {
  for (const Gpu& gpu : gpus()) {
    EXPECT_FALSE(gpu.name.empty());
    EXPECT_GT(gpu.memory, 0);
    EXPECT_GT(gpu.units, 0);
  }
}

}  // namespace
}  // namespace braid
