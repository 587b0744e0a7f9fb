#include "data/shuffle.h"

#include <bit>

#include "core/philox.h"
#include "sys/check.h"

namespace braid::data {
namespace {

constexpr uint32_t kRounds = 6;  // four already pass for random

uint64_t permute(uint64_t value, int half_bits, uint64_t key) {
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t left = value >> half_bits, right = value & mask;
  for (uint32_t round = 0; round < kRounds; ++round) {
    const uint64_t swapped = left ^ (philox({.seed = key, .stream = round}, right)[0] & mask);
    left = right;
    right = swapped;
  }
  return left << half_bits | right;
}

}  // namespace

int64_t shuffled(int64_t i, int64_t n, uint64_t key) {
  CHECK(i >= 0 && i < n, "{} of {}", i, n);
  const int half_bits = (static_cast<int>(std::bit_width(static_cast<uint64_t>(n - 1))) + 1) / 2;
  CHECK(half_bits <= 31, "{} indices", n);
  auto value = static_cast<uint64_t>(i);
  do value = permute(value, half_bits, key);
  while (value >= static_cast<uint64_t>(n));
  return static_cast<int64_t>(value);
}

uint64_t mix(uint64_t key, uint64_t salt) {
  uint64_t z = key + (salt + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace braid::data
