// The GPU of each rank, and the messages that agree on it (nccl.cc).
#pragma once
#include <chrono>
#include <deque>

#include "comm/nccl_library.h"
#include "comm/transport.h"

namespace braid::comm {

inline double seconds_of(std::chrono::milliseconds time) { return std::chrono::duration<double>(time).count(); }

// What ranks tell each other beside the calls of groups: lanes that messages of users do not take (group.cc).
enum class NcclLane : uint64_t { seat = 1, device = 2, id = 3 };

template <class Value>
Message nccl_message(int peer, uint32_t context, NcclLane lane, Value& value) {
  return {.peer = peer,
          .tag = uint64_t{context} << 40 | uint64_t{1} << 39 | static_cast<uint64_t>(lane),
          .data = reinterpret_cast<std::byte*>(&value),
          .bytes = static_cast<int64_t>(sizeof value)};
}

// Waits for all of them. A time-out is an error that names a peer.
void nccl_finish(Transport& transport, std::deque<Message>& messages, std::chrono::milliseconds timeout);

// Its number for this rank. Rank 0 hears of the GPUs of all and decides; where that fails, it tells the error and the
// others wait for its end, so that one line is printed.
int nccl_place(Transport& transport, const NcclLibrary& library, std::chrono::milliseconds timeout);

}  // namespace braid::comm
