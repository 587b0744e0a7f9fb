// One rank's walk through a schedule over real bytes: which messages the current round has, where their bytes are, and
// the local steps at its end. Transports in real time (call.h) and in virtual time (sim.h) both drive it.
#pragma once
#include <memory>

#include "comm/reduction.h"
#include "comm/steps.h"

namespace braid::comm {

struct Buffers {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
};

class Player {
 public:
  Player(Schedule schedule, const Buffers& buffers, DType type, Reduction reduction);
  // Moves no bytes, only counts them.
  Player(Schedule schedule, DType type, Reduction reduction);
  bool moves() const { return moves_; }

  // Makes the next round that has anything to do. False: the schedule is over.
  bool next();
  const Round& round() const { return round_; }
  // The local steps of the round, once all its messages are there. Counts what they moved, in bytes.
  void finish_round();

  int64_t bytes(const Transfer& t) const { return t.count * element_; }
  // Where a message lies if it is in one piece; null otherwise.
  const std::byte* source(const Transfer& t) const;
  std::byte* target(const Transfer& t);
  // Its pieces to and from consecutive bytes.
  void gather(const Transfer& t, std::byte* to) const;
  void scatter(const Transfer& t, const std::byte* from);

  int64_t copied_bytes() const { return copied_; }
  int64_t reduced_bytes() const { return reduced_; }

 private:
  const std::byte* at(const Range& r) const;
  std::byte* at_mutable(const Range& r);

  Schedule schedule_;
  Buffers buffers_;
  DType type_;
  Reduction reduction_;
  int64_t element_;
  bool moves_ = true;
  std::unique_ptr<std::byte[]> scratch_;
  size_t stage_ = 0;
  int64_t next_round_ = 0;
  Round round_;
  int64_t copied_ = 0, reduced_ = 0;
};

}  // namespace braid::comm
