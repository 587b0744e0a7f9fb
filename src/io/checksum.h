// A checksum of 64 bits over bytes that come in pieces of any size, by which a damaged file is noticed: one multiply
// for eight bytes. Not for security.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace braid::io {

class Checksum {
 public:
  void update(std::span<const std::byte> bytes) {
    count_ += bytes.size();
    while (!bytes.empty()) {
      if (filled_ == 0 && bytes.size() >= sizeof word_) {
        std::memcpy(&word_, bytes.data(), sizeof word_);
        bytes = bytes.subspan(sizeof word_);
        mix();
        continue;
      }
      reinterpret_cast<std::byte*>(&word_)[filled_++] = bytes[0];
      bytes = bytes.subspan(1);
      if (filled_ == sizeof word_) mix();
    }
  }
  template <class Num>
  void update_value(const Num& value) {
    update(std::as_bytes(std::span(&value, 1)));
  }
  // Of everything so far.
  uint64_t value() const { return finished(finished(hash_ ^ word_) ^ count_); }

 private:
  void mix() {
    hash_ = std::rotl((hash_ ^ word_) * 0x9e3779b97f4a7c15u, 29);
    word_ = 0;
    filled_ = 0;
  }
  // The finaliser of SplitMix64: every bit of the input affects every bit of the result.
  static uint64_t finished(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
  }

  uint64_t hash_ = 0, word_ = 0, count_ = 0;
  size_t filled_ = 0;
};

}  // namespace braid::io
