// A shuffle that needs no memory: the new position of index i of n is computed, so that any sample of any epoch is
// found directly and a run resumes from its step alone. A Feistel network over the next power of four, applied until
// the value is below n (Black and Rogaway 2002, "Ciphers with arbitrary finite domains"); its round function is Philox.
#pragma once
#include <cstdint>

namespace braid::data {

// A bijection of [0, n) for every key; 0 <= i < n.
int64_t shuffled(int64_t i, int64_t n, uint64_t key);

// A new key for every (key, salt): the finaliser of SplitMix64.
uint64_t mix(uint64_t key, uint64_t salt);

}  // namespace braid::data
