// SeqMap: which rows of a flat [T, ...] activation belong to which sequence. The same map serves training (packed
// documents), prefill and decode; tokens of different sequences never touch each other.
#pragma once
#include <cstdint>
#include <vector>

namespace braid {

struct Seq {
  int64_t start = 0;      // first row in the flat batch
  int64_t len = 0;        // rows
  int64_t pos0 = 0;       // tokens of this sequence already in its state
  int64_t slot = 0;       // which state it owns
  int64_t sample_id = 0;  // global name for random numbers, independent of packing
};

struct SeqMap {
  std::vector<Seq> seqs;

  int64_t tokens() const { return seqs.empty() ? 0 : seqs.back().start + seqs.back().len; }
  void add(int64_t len, int64_t pos0 = 0, int64_t slot = 0, int64_t sample_id = 0) {
    seqs.push_back({.start = tokens(), .len = len, .pos0 = pos0, .slot = slot, .sample_id = sample_id});
  }
  static SeqMap one(int64_t len, int64_t pos0 = 0, int64_t slot = 0) {
    SeqMap map;
    map.add(len, pos0, slot);
    return map;
  }
};

}  // namespace braid
