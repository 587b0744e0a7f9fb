// Messages as frames of a stream of bytes between two ranks: a header (tag, check, length), then the payload. A writer
// and a reader that go as far as a stream has room or bytes, for rings in shared memory and for sockets.
#pragma once
#include <array>
#include <deque>
#include <span>

#include "comm/mailbox.h"

namespace braid::comm {

constexpr int64_t kFrameMost = int64_t{1} << 40;  // bytes

struct FrameHeader {
  uint64_t tag = 0, check = 0;
  int64_t bytes = 0;
};

// What one rank sends to another.
class FrameWriter {
 public:
  void add(Message& m) { queue_.push_back(&m); }
  bool empty() const { return queue_.empty(); }
  void forget() noexcept { queue_.clear(); }
  // The bytes to send next, in one piece; and that n of them are sent.
  std::span<const std::byte> pending();
  void sent(size_t n);

 private:
  std::deque<Message*> queue_;
  FrameHeader header_;  // of the first
  size_t at_ = 0;       // within header and payload
};

// What one rank receives from another. A payload goes straight to the receive that waits for it.
class FrameReader {
 public:
  FrameReader(int from, Mailbox& mailbox) : from_(from), mailbox_(&mailbox) {}
  // Where the next bytes go, never empty; and that n of them are there.
  std::span<std::byte> room();
  void got(size_t n);
  // The receive that is being filled is no longer there; the rest of its message goes nowhere.
  void forget() noexcept;

 private:
  void begin_payload();
  void end_payload();

  int from_;
  Mailbox* mailbox_;
  FrameHeader header_;
  size_t at_ = 0;
  Message* target_ = nullptr;
  Mail mail_;  // without a target of this size
};

}  // namespace braid::comm
