// A hash of all that data says, so that a run notices other data under the same name. Not for security.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data/shuffle.h"
#include "sys/parallel.h"

namespace braid::data {

// Of one part. A change of any bit changes it.
uint64_t hash_of(std::span<const std::byte> bytes);
template <class Item>
uint64_t hash_of(std::span<const Item> items) {
  return hash_of(std::as_bytes(items));
}

// Of `count` items in parts of a fixed size, by part(begin, count): the same for any number of threads.
template <class Part>
uint64_t hash_in_parts(int threads, int64_t count, const Part& part) {
  constexpr int64_t kItems = int64_t{1} << 16;
  std::vector<uint64_t> hashes(static_cast<size_t>((count + kItems - 1) / kItems));
  sys::parallel_tasks(threads, std::ssize(hashes), [&](int64_t p) {
    hashes[static_cast<size_t>(p)] = part(p * kItems, std::min(kItems, count - p * kItems));
  });
  uint64_t all = static_cast<uint64_t>(count);
  for (const uint64_t hash : hashes) all = mix(all, hash);
  return all;
}

}  // namespace braid::data
