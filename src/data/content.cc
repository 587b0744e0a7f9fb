#include "data/content.h"

#include <cstring>

namespace braid::data {

// Multiplying by an odd number loses no bit: parts that differ in one word differ.
uint64_t hash_of(std::span<const std::byte> bytes) {
  uint64_t hash = bytes.size();
  for (size_t i = 0; i < bytes.size(); i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, std::min(sizeof(word), bytes.size() - i));
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
  }
  return mix(hash, 0);
}

}  // namespace braid::data
