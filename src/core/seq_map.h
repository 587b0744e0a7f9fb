// SeqMap: which rows of a flat [T, ...] activation belong to which sequence. The same map serves training (packed
// documents), prefill and decode; tokens of different sequences never interact.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace braid {

// How a pass reads a sequence; one pass may hold both. Prefill may use the chunked form of the scan, a step (1 to 8
// tokens) uses the recurrence. With Numerics::exact both use the chunked form, and agree bit for bit.
enum class Phase : uint8_t { prefill, step };

struct Seq {
  int64_t start = 0;      // first row in the flat batch
  int64_t len = 0;        // rows
  int64_t pos0 = 0;       // tokens of this sequence already in its state
  int64_t slot = 0;       // which recurrent state it owns
  int64_t sample_id = 0;  // global id for random numbers, independent of packing
  int64_t table = 0;      // its row of the page table
  int64_t trail = -1;     // of a step: first of `len` entries of SeqMap::trails; -1: none
  Phase phase = Phase::prefill;
};

struct SeqMap {
  std::vector<Seq> seqs;
  // Slots that receive the recurrent state after each token of a step, one after another where they are the same. The
  // state that such a step starts from is unchanged, so that its tokens can be discarded, or some of them replayed.
  std::vector<int64_t> trails{};

  void clear() {
    seqs.clear();
    trails.clear();
  }
  int64_t tokens() const { return seqs.empty() ? 0 : seqs.back().start + seqs.back().len; }
  void add(int64_t len, int64_t pos0 = 0, int64_t slot = 0, int64_t sample_id = 0) {
    seqs.push_back({.start = tokens(), .len = len, .pos0 = pos0, .slot = slot, .sample_id = sample_id, .table = slot});
  }
  static SeqMap one(int64_t len, int64_t pos0 = 0, int64_t slot = 0) {
    SeqMap map;
    map.add(len, pos0, slot);
    return map;
  }
  // Sequences [first, last), their rows counted from those of the first.
  SeqMap part(size_t first, size_t last) const {
    SeqMap map{
        .seqs = {seqs.begin() + static_cast<std::ptrdiff_t>(first), seqs.begin() + static_cast<std::ptrdiff_t>(last)},
        .trails = trails};
    for (Seq& s : map.seqs) s.start -= seqs[first].start;
    return map;
  }
  // The slots of the state before and after token i of a sequence.
  int64_t slot_before(const Seq& s, int64_t i) const { return s.trail < 0 || i == 0 ? s.slot : slot_after(s, i - 1); }
  int64_t slot_after(const Seq& s, int64_t i) const {
    return s.trail < 0 ? s.slot : trails[static_cast<size_t>(s.trail + i)];
  }
  // Whether the sequence has no trail, or one of slots in [0, slots) other than its own.
  bool trail_fits(const Seq& s, int64_t slots) const {
    if (s.trail < 0) return true;
    if (s.phase != Phase::step || s.trail + s.len > static_cast<int64_t>(trails.size())) return false;
    for (int64_t i = 0; i < s.len; ++i) {
      const int64_t slot = slot_after(s, i);
      if (slot < 0 || slot >= slots || slot == s.slot) return false;
    }
    return true;
  }
};

}  // namespace braid
