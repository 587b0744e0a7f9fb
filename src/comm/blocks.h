// Which elements of a vector belong to which rank, and the groups of ranks within which an algorithm runs: all of them,
// those of a node, or those with the same place in every node.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/steps.h"

namespace braid::comm {

// A vector cut into consecutive blocks. Cheap to copy: uneven counts are shared.
class Blocks {
 public:
  Blocks() = default;
  // Blocks of `count` elements each.
  static Blocks equal(int64_t count, int blocks) {
    Blocks b;
    b.blocks_ = blocks;
    b.total_ = count * blocks;
    return b;
  }
  // `total` elements as evenly as they go: the first blocks are one element longer.
  static Blocks divided(int64_t total, int blocks) {
    Blocks b;
    b.blocks_ = blocks;
    b.total_ = total;
    return b;
  }
  static Blocks of_counts(std::span<const int64_t> counts) {
    auto ends = std::make_shared<std::vector<int64_t>>(1, 0);  // shared, because every round of every stage holds it
    for (const int64_t n : counts) ends->push_back(ends->back() + n);
    Blocks b;
    b.blocks_ = static_cast<int>(counts.size());
    b.total_ = ends->back();
    b.at_ = std::move(ends);
    return b;
  }

  int blocks() const { return blocks_; }
  int64_t total() const { return total_; }
  // Where block b begins; of blocks(): where the last ends.
  int64_t at(int b) const {
    if (at_) return (*at_)[static_cast<size_t>(b)];
    return b * (total_ / blocks_) + std::min<int64_t>(b, total_ % blocks_);
  }
  int64_t count(int b) const { return at(b + 1) - at(b); }
  bool even() const {  // all blocks have as many elements
    for (int b = 1; b < blocks_; ++b) {
      if (count(b) != count(0)) return false;
    }
    return true;
  }
  Range range(Space space, int b) const { return {space, at(b), count(b)}; }

 private:
  int blocks_ = 1;
  int64_t total_ = 0;
  std::shared_ptr<const std::vector<int64_t>> at_;
};

// Ranks first, first + stride, ... of which this rank is number `me`.
struct Team {
  int me = 0, size = 1, first = 0, stride = 1;
  int rank(int i) const { return first + i * stride; }
  int wrapped(int i) const { return ((i % size) + size) % size; }
};

// What each member of a team has or gets: `inner` blocks that are `inner_step` apart. A member's blocks need not touch,
// which is how a hierarchical algorithm leaves everything in the order of ranks without a transposition.
struct Parts {
  Blocks blocks{};
  int first = 0, step = 1;  // the first block of member 0, and from member to member
  int inner = 1, inner_step = 0;

  void add(Space space, int member, Ranges& to) const {
    for (int k = 0; k < inner; ++k) to.add(blocks.range(space, first + member * step + k * inner_step));
  }
  Ranges of(Space space, int member) const { return of(space, member, member + 1); }
  Ranges of(Space space, int begin, int end) const {  // members [begin, end)
    Ranges ranges;
    for (int member = begin; member < end; ++member) add(space, member, ranges);
    return ranges;
  }
  int64_t count(int member) const {
    int64_t n = 0;
    for (int k = 0; k < inner; ++k) n += blocks.count(first + member * step + k * inner_step);
    return n;
  }
  int64_t largest(int members) const {
    int64_t n = 0;
    for (int member = 0; member < members; ++member) n = std::max(n, count(member));
    return n;
  }
};

}  // namespace braid::comm
