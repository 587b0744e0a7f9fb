// How bytes get from one rank to another: two-sided messages that do not block, and, where ranks share memory, windows
// that peers store into. A transport belongs to one thread. Messages of one tag between two ranks arrive in order.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

namespace braid::comm {

struct NativeCall;

// Belongs to the caller that posted it and stays in place until `done`. What a transport reports of the message that
// arrived is compared by the caller; no more than `bytes` are written.
struct Message {
  int peer = 0;
  uint64_t tag = 0;
  std::byte* data = nullptr;  // of a message to send it is only read
  int64_t bytes = 0;
  uint64_t check = 0;  // travels with the message
  bool done = false;
  int64_t got_bytes = 0;
  uint64_t got_check = 0;
};

class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void send(Message& message) = 0;
  virtual void recv(Message& message) = 0;
  // Does what can be done and, when that is nothing, waits up to `patience` for something to happen. Error when a peer
  // is known to be gone.
  virtual void progress(std::chrono::microseconds patience) = 0;
  // Drops all messages that are not done: their owner gives up.
  virtual void forget() noexcept = 0;
  // A window of a rank, zeroed before its first use and at the same place ever after. Its key is its group's number and
  // its layout (cells.h); ranks that use it agree on both. Null where ranks do not share memory.
  virtual std::byte* window(uint64_t key, int rank, int64_t bytes) = 0;

  // Whether its library has collectives itself (native.h). If so, the members of a new group, ranks of the transport,
  // join it before their first call, and `done` of the message says that a call is over.
  virtual bool has_native() const { return false; }
  virtual void join(uint32_t /*context*/, std::span<const int> /*members*/) {}
  virtual void native(const NativeCall& /*call*/, Message& /*message*/) {}
};

}  // namespace braid::comm
