// The placement of the blocks of a pass when every pass makes the same requests in the same order: their sizes and
// lifetimes are known, so blocks that are never live at the same time share memory. Passes over smaller batches follow
// the plan of the largest: a block is never larger than its place.
#pragma once
#include <cstdint>
#include <vector>

namespace braid {

struct ArenaPlan {
  struct Block {
    int64_t bytes = 0, offset = 0;
    int32_t begin = 0, end = 0;  // indices into events
  };
  std::vector<Block> blocks{};    // in the order they are taken
  std::vector<int32_t> events{};  // block n allocated: n; freed: -1 - n
  int64_t bytes = 0;              // total
  int64_t bytes_live = 0;         // most bytes in use at once: no plan can take less
  int64_t made = 0;               // times it was placed
  int64_t outgrown = 0;           // requests beyond their place, and passes in another order
  bool dry = false;               // hardly anything is written: blocks are addresses without a promise of memory

  // Gives every block its offset, the large ones first.
  void place();
  // Makes room for the blocks of another pass as well. Returns false, changing nothing, if its order differs.
  bool cover(const ArenaPlan& other);
};

}  // namespace braid
