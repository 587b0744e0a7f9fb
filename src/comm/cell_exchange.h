// Times what LL8 cells are for (cells.h): a message between two processes through shared memory, as cells, which carry
// their flag in every word, and as plain data that a flag follows, stored with release and loaded with acquire.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "sys/function_ref.h"

namespace braid::comm {

struct CellExchange {
  int64_t bytes = 0;
  // From the begin of the store to the end of the read, half of the time there and back; the fastest round.
  double cells_ns = 0, flag_ns = 0;
};

// Both ways in turns, `rounds` times `messages` messages of each size, at most cells::kPayloadMost. Forks
// (processes.h). Every message is compared with what was sent. `progress` gets the number of sizes done. Error when the
// other process has ended.
std::vector<CellExchange> time_cells(std::span<const int64_t> sizes, int rounds, int messages,
                                     const sys::FunctionRef<void(int64_t)>& progress);

}  // namespace braid::comm
