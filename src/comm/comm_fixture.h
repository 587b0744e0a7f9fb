// What the tests of collectives share: inputs that are a function of rank and position, every operation's result in
// FP64, and outputs between guards that start as NaN.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "comm/group.h"

namespace braid::comm {

// Of rank r at position i: small numbers that every type holds exactly, of both signs where it has signs.
inline double input_value(DType type, int r, int64_t i) {
  const auto mixed = (static_cast<uint64_t>(r) * 2654435761u + static_cast<uint64_t>(i) * 40503u + 12345u) >> 7;
  const auto whole = static_cast<double>(mixed % 23);
  if (type == DType::u8) return whole;
  return type == DType::i32 || type == DType::i64 ? whole - 11 : (whole - 11) / 8;
}

// Bytes between two guards, all 0xff at first: NaN as floating point.
class Guarded {
 public:
  Guarded(DType type, int64_t count)
      : type_(type), count_(count), bytes_(static_cast<size_t>(count * size_of(type)) + 2 * kGuard, std::byte{0xff}) {}
  MutView view() { return {bytes_.data() + kGuard, type_, {count_}}; }
  bool guards_intact() const {
    for (size_t i = 0; i < kGuard; ++i) {
      if (bytes_[i] != std::byte{0xff} || bytes_[bytes_.size() - 1 - i] != std::byte{0xff}) return false;
    }
    return true;
  }
  void fill_from(int rank, int64_t first = 0) {
    for (int64_t i = 0; i < count_; ++i) set_element(view(), i, input_value(type_, rank, first + i));
  }

 private:
  static constexpr size_t kGuard = 64;
  DType type_;
  int64_t count_;
  std::vector<std::byte> bytes_;
};

// What a reduction over ranks gives at position i, with the sum of magnitudes for its error bound.
struct Expected {
  double value = 0, magnitude = 0;
};
inline Expected reduced(DType type, Reduction op, int ranks, int64_t i) {
  Expected e{input_value(type, 0, i), std::fabs(input_value(type, 0, i))};
  for (int r = 1; r < ranks; ++r) {
    const double v = input_value(type, r, i);
    e.value = op == Reduction::sum ? e.value + v : op == Reduction::max ? std::max(e.value, v) : std::min(e.value, v);
    e.magnitude += std::fabs(v);
  }
  if (type == DType::u8) e.value = static_cast<double>(static_cast<uint64_t>(e.value) % 256);
  return e;
}

// Half a unit in the last place for every addition on the longest path.
inline double bound(DType type, int ranks, double magnitude) {
  const double unit = type == DType::f32 ? 0x1p-24 : type == DType::bf16 ? 0x1p-9 : type == DType::f16 ? 0x1p-12 : 0;
  return unit * ranks * magnitude;
}

inline std::vector<int64_t> uneven_counts(int ranks, int64_t unit) {
  // Some are 0. On 3, 5 and 8 ranks the first is the mean: that alone does not make them equal.
  constexpr int64_t kUnits[] = {2, 1, 3, 0, 4};
  std::vector<int64_t> counts;
  for (int r = 0; r < ranks; ++r) counts.push_back(unit * kUnits[r % 5]);
  return counts;
}

// A test that hangs fails soon.
constexpr std::chrono::milliseconds kTestTimeout{20000};

// Divisors: the sizes of nodes that a group can have.
inline std::vector<int> node_sizes(int ranks) {
  std::vector<int> sizes;
  for (int g = 1; g <= ranks; ++g) {
    if (ranks % g == 0) sizes.push_back(g);
  }
  return sizes;
}

}  // namespace braid::comm
