// Two binary trees over the same ranks, each reducing and broadcasting one half of the vector. A rank that has children
// in one is a leaf of the other, but for one rank where P is odd (Sanders, Speck and Traeff 2009), so both halves
// together load every link about equally. Segments follow each other through a tree: it takes segments + 2 levels
// rounds.
#include <bit>

#include "comm/phases.h"

namespace braid::comm {
namespace {

constexpr int64_t kSegmentBytes = 64 << 10;

// The tree in which the level of place r > 0 is the number of zeros at the end of r, and the root is place 0. Its
// leaves are the odd places.
struct InOrderTree {
  int size = 1;

  int level(int r) const {
    return r == 0 ? static_cast<int>(std::bit_width(static_cast<unsigned>(size - 1)))
                  : std::countr_zero(static_cast<unsigned>(r));
  }
  int levels() const { return level(0); }
  int parent(int r) const {  // of r > 0
    const int bit = 1 << level(r), up = (r | 2 * bit) & ~bit;
    return up < size ? up : r - bit;
  }
  // -1: none. The left child is less than r, the right one is the largest subtree beyond it.
  int left(int r) const { return r > 0 && level(r) > 0 ? r - (1 << (level(r) - 1)) : -1; }
  int right(int r) const {
    for (int step = 1 << level(r) >> 1; step > 0; step /= 2) {
      if (r + step < size) return r + step;
    }
    return -1;
  }
};

// One of the trees, as one rank sees it.
struct Branch {
  InOrderTree tree{};
  int shift = 0;  // ranks are places plus this
  int me = 0;     // place
  uint8_t lane = 0;
  Range half{};
  int64_t segment = 1, segments = 0;
  int64_t landing[2] = {0, 0};

  int rank(int place) const { return (place + shift) % tree.size; }
  Range piece(int64_t i) const {
    return {half.space, half.at + i * segment, std::min(segment, half.count - i * segment)};
  }
  bool has(int64_t i) const { return i >= 0 && i < segments; }

  // A parent of level k exchanges segment i with its children in round i + k - 1 on the way up, and a child of level c
  // gets it back in round i + 2 levels - c - 1: after the parent got it, and after the root had it whole.
  void up(int64_t round, Round& out) const {
    const int children[2] = {tree.left(me), tree.right(me)};
    for (int c = 0; c < 2; ++c) {
      const int64_t i = round - tree.level(me) + 1;
      if (children[c] >= 0 && has(i)) out.recv_reduce(rank(children[c]), piece(i), landing[c], lane);
    }
    if (me == 0) return;
    const int64_t i = round - tree.level(tree.parent(me)) + 1;
    if (has(i)) out.send(rank(tree.parent(me)), piece(i), lane);
  }
  void down(int64_t round, Round& out) const {
    const auto down_lane = static_cast<uint8_t>(lane + 1);
    for (const int child : {tree.left(me), tree.right(me)}) {
      if (child < 0) continue;
      const int64_t i = round - 2 * tree.levels() + tree.level(child) + 1;
      if (has(i)) out.send(rank(child), piece(i), down_lane);
    }
    const int64_t i = round - 2 * tree.levels() + tree.level(me) + 1;
    if (me != 0 && has(i)) out.recv(rank(tree.parent(me)), piece(i), down_lane);
  }
};

}  // namespace

Schedule double_tree_all_reduce(const Problem& p) {
  Schedule s;
  copy_to_out(s, p);
  if (p.size == 1) return s;
  const Blocks halves = Blocks::divided(p.blocks.total(), 2);
  Branch branches[2];
  int64_t segments = 0;
  for (int b = 0; b < 2; ++b) {
    Branch& branch = branches[b];
    branch = {.tree = {.size = p.size}, .shift = b, .lane = static_cast<uint8_t>(2 * b)};
    branch.half = halves.range(Space::out, b);
    branch.me = p.all().wrapped(p.rank - b);
    branch.segment = kSegmentBytes / p.element;
    branch.segments = (branch.half.count + branch.segment - 1) / branch.segment;
    for (int64_t& landing : branch.landing) landing = s.reserve(std::min(branch.segment, branch.half.count));
    segments = std::max(segments, branch.segments);
  }
  const Branch first = branches[0], second = branches[1];
  if (segments == 0) return s;
  s.then(segments + 2 * first.tree.levels() - 1, [first, second](int64_t round, Round& out) {
    for (const Branch& branch : {first, second}) {
      branch.up(round, out);
      branch.down(round, out);
    }
  });
  return s;
}

}  // namespace braid::comm
