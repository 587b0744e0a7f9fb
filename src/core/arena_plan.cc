#include "core/arena_plan.h"

#include <algorithm>
#include <numeric>

namespace braid {

void ArenaPlan::place() {
  for (size_t i = 0; i < events.size(); ++i) {
    const int32_t e = events[i];
    (e >= 0 ? blocks[static_cast<size_t>(e)].begin : blocks[static_cast<size_t>(-1 - e)].end) = static_cast<int32_t>(i);
  }
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [this](size_t a, size_t b) { return blocks[a].bytes > blocks[b].bytes; });
  // Those placed so far, by offset: a block goes into the first gap between those live at the same time.
  std::vector<size_t> placed;
  bytes = 0;
  for (const size_t i : order) {
    Block& block = blocks[i];
    block.offset = 0;
    for (const size_t j : placed) {
      const Block& other = blocks[j];
      if (other.end < block.begin || other.begin > block.end) continue;
      if (other.offset >= block.offset + block.bytes) break;
      block.offset = std::max(block.offset, other.offset + other.bytes);
    }
    const auto at =
        std::find_if(placed.begin(), placed.end(), [&](size_t j) { return blocks[j].offset > block.offset; });
    placed.insert(at, i);
    bytes = std::max(bytes, block.offset + block.bytes);
  }
  int64_t live = 0;
  bytes_live = 0;
  for (const int32_t e : events) {
    live += e >= 0 ? blocks[static_cast<size_t>(e)].bytes : -blocks[static_cast<size_t>(-1 - e)].bytes;
    bytes_live = std::max(bytes_live, live);
  }
  ++made;
}

bool ArenaPlan::cover(const ArenaPlan& other) {
  if (events != other.events) return false;
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i].bytes = std::max(blocks[i].bytes, other.blocks[i].bytes);
  place();
  return true;
}

}  // namespace braid
