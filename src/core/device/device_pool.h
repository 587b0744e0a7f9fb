// A memory pool of a device: a freed block serves the next request of its size class, so that a step with the same
// requests as the one before never calls the driver. One stream uses a pool, and its order makes reuse safe. A pass
// that is recorded runs again later: what it frees while it is recorded stays its own.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <unordered_map>
#include <vector>

namespace braid {

class DevicePool {
 public:
  struct Backing {
    std::function<std::byte*(int64_t bytes)> take;  // null when out of memory
    std::function<void(std::byte*)> give_back;
  };
  explicit DevicePool(Backing backing) : backing_(std::move(backing)) {}
  DevicePool(const DevicePool&) = delete;
  DevicePool& operator=(const DevicePool&) = delete;
  ~DevicePool();  // every block must have been returned

  // At least `bytes`, aligned as the backing aligns. Error when even an empty pool cannot provide them.
  std::byte* take(int64_t bytes);
  void give_back(std::byte* data);
  // Returns all idle blocks to the device.
  void trim();

  // Between the two, freed blocks serve requests of the recording alone. `end_recording` hands them to the caller, who
  // frees them when the recording is not run again.
  void begin_recording();
  std::vector<std::byte*> end_recording();

  int64_t bytes_in_use() const { return in_use_; }
  int64_t bytes_held() const { return held_; }    // in use and idle
  int64_t requests() const { return requests_; }  // to the backing

  // The bytes reserved for a request of `bytes`: eight classes per power of two, at least 512 bytes.
  static int64_t size_class(int64_t bytes);

 private:
  Backing backing_;
  std::map<int64_t, std::vector<std::byte*>> idle_, kept_;  // by size class; kept: of the recording
  std::unordered_map<std::byte*, int64_t> used_;
  int64_t in_use_ = 0, held_ = 0, requests_ = 0;
  bool recording_ = false;
};

// A block of a pool while this lives.
class PoolBlock {
 public:
  PoolBlock(DevicePool& pool, int64_t bytes) : pool_(pool), data_(pool.take(bytes)) {}
  PoolBlock(const PoolBlock&) = delete;
  PoolBlock& operator=(const PoolBlock&) = delete;
  ~PoolBlock() { pool_.give_back(data_); }
  std::byte* data() const { return data_; }

 private:
  DevicePool& pool_;
  std::byte* data_;
};

}  // namespace braid
