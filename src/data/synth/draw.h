// Choices by counter: sample i of a stream is a function of the seed, the stream and i alone, so that more samples,
// another order or a new kind of task change no existing sample.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/philox.h"

namespace braid::synth {

class Draw {
 public:
  Draw(const RandomKey& key, uint64_t sample) : key_(key), next_(sample << 20) {}

  // 0 to n - 1; n below 2^31.
  int64_t below(int64_t n) { return static_cast<int64_t>((bits() * static_cast<uint64_t>(n)) >> 32); }
  int64_t between(int64_t least, int64_t most) { return least + below(most - least + 1); }
  bool percent(int64_t chance) { return below(100) < chance; }
  template <class List>  // array, span, vector
  const auto& pick(const List& among) {
    return among[static_cast<size_t>(below(std::ssize(among)))];
  }
  // An index, by weights that need not be normalised.
  size_t weighted(std::span<const int64_t> weights) {
    int64_t total = 0;
    for (const int64_t w : weights) total += w;
    int64_t at = below(total);
    size_t i = 0;
    while (at >= weights[i]) at -= weights[i++];
    return i;
  }

 private:
  uint64_t bits() { return philox(key_, next_++)[0]; }

  RandomKey key_;
  uint64_t next_;
};

// A template with each {name} replaced: fill("{a} + {b}", {{"a", "1"}, {"b", "2"}}).
struct Slot {
  std::string_view name;
  std::string value;
};
std::string fill(std::string_view form, std::initializer_list<Slot> slots);

// The entries of a list separated by "|".
std::vector<std::string_view> entries(std::string_view list);

}  // namespace braid::synth
