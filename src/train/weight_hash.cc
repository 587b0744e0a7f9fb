#include "train/weight_hash.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "sys/parallel.h"

namespace braid::train {
namespace {

constexpr int64_t kPart = int64_t{1} << 18;

// The finaliser of SplitMix64: every bit of the input affects every bit of the result.
uint64_t mixed(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

}  // namespace

uint64_t weight_hash(std::span<const float> values, int threads) {
  const int64_t n = std::ssize(values), parts = (n + kPart - 1) / kPart;
  std::vector<uint64_t> hashes(static_cast<size_t>(parts));
  sys::parallel_tasks(threads, parts, [&](int64_t p) {
    uint64_t hash = static_cast<uint64_t>(p) + 1;
    const int64_t end = std::min(n, (p + 1) * kPart);
    for (int64_t i = p * kPart; i < end; ++i)
      hash = (hash ^ std::bit_cast<uint32_t>(values[static_cast<size_t>(i)])) * 0x9e3779b97f4a7c15u;
    hashes[static_cast<size_t>(p)] = mixed(hash);
  });
  uint64_t all = static_cast<uint64_t>(n);
  for (const uint64_t hash : hashes) all = mixed(all ^ hash);
  return all;
}

}  // namespace braid::train
