// What an algorithm is made of. An algorithm writes, for one rank, a Schedule: stages of numbered rounds. A round's
// messages are all in flight together; when they have arrived its local steps run in order, and then the next round
// begins. Rounds are made when they are needed, as a pure function of their number, so that a schedule of thousands of
// rounds takes no memory. A schedule knows neither transports nor types: offsets and counts are in elements. The same
// one therefore runs over threads, processes, MPI and in virtual time.
//
// Within a round no two messages touch the same elements unless both only read them: messages may be carried out in any
// order (the tests check this of every algorithm).
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "comm/cells.h"

namespace braid::comm {

// The buffers of a call. `in` is only read; in a call in place it shares bytes with `out`.
enum class Space : uint8_t { in, out, scratch };

struct Range {
  Space space = Space::out;
  int64_t at = 0, count = 0;
};

// The pieces of a message, in order. Empty pieces are left out and touching ones are joined.
class Ranges {
 public:
  Ranges() = default;
  Ranges(const Range& range) { add(range); }
  void add(const Range& range) {
    if (range.count == 0) return;
    count_ += range.count;
    if (!list_.empty() && list_.back().space == range.space && list_.back().at + list_.back().count == range.at)
      list_.back().count += range.count;
    else
      list_.push_back(range);
  }
  const std::vector<Range>& list() const { return list_; }
  int64_t count() const { return count_; }

 private:
  std::vector<Range> list_;
  int64_t count_ = 0;
};

// A message of a round. Messages from one rank to another arrive in the order of their sending within a lane.
//
// Cells: a message with a slot of 0 or more is sent as LL8 cells, 8 bytes that hold 4 bytes of data and the number of
// the message (NVRAR, arXiv 2511.09557; the name is NCCL's LL protocol's). Where ranks see each other's memory, cells
// are stored straight into that slot of the receiver's window, and data and number arrive together. Elsewhere
// they are an ordinary message of twice the bytes.
struct Transfer {
  enum class Kind : uint8_t { send, recv } kind = Kind::send;
  uint8_t lane = 0;
  int peer = 0;
  int64_t count = 0;                    // elements
  int32_t first_range = 0, ranges = 0;  // in Round::ranges()
  int32_t slot = -1;
  uint32_t cell_number = 0;  // counts from 0 within a call
};

struct Local {
  enum class Kind : uint8_t { copy, reduce } kind = Kind::copy;  // dst = src, dst = op(dst, src)
  Range dst{}, src{};                                            // of equal counts
};

class Round {
 public:
  void clear();
  // Nothing is sent where there are no elements; both sides know the counts.
  void send(int peer, const Ranges& ranges, uint8_t lane = 0) { add(Transfer::Kind::send, peer, ranges, lane); }
  void recv(int peer, const Ranges& ranges, uint8_t lane = 0) { add(Transfer::Kind::recv, peer, ranges, lane); }
  // A message without elements: for barriers.
  void signal(int peer);
  void await(int peer);
  void send_cells(int peer, const Range& range, int32_t slot, uint32_t number);
  void recv_cells(int peer, const Range& range, int32_t slot, uint32_t number);

  void copy(const Range& dst, const Range& src);
  void reduce(const Range& dst, const Range& src);
  // Receives into scratch from `landing` on and then reduces that into `dst`.
  void recv_reduce(int peer, const Ranges& dst, int64_t landing, uint8_t lane = 0);

  bool empty() const { return transfers_.empty() && locals_.empty(); }
  const std::vector<Transfer>& transfers() const { return transfers_; }
  const std::vector<Local>& locals() const { return locals_; }
  std::span<const Range> ranges(const Transfer& t) const {
    return std::span(ranges_).subspan(static_cast<size_t>(t.first_range), static_cast<size_t>(t.ranges));
  }

 private:
  void add(Transfer::Kind kind, int peer, const Ranges& ranges, uint8_t lane);
  void add_cells(Transfer::Kind kind, int peer, const Range& range, int32_t slot, uint32_t number);

  std::vector<Transfer> transfers_;
  std::vector<Local> locals_;
  std::vector<Range> ranges_;
};

struct Stage {
  int64_t rounds = 0;
  std::function<void(int64_t round, Round& out)> emit;
};

struct Schedule {
  int64_t scratch = 0;         // elements
  cells::Layout window{};      // of cells
  uint32_t cell_messages = 0;  // the numbers of cells that a call uses up
  std::vector<Stage> stages;

  void then(int64_t rounds, std::function<void(int64_t, Round&)> emit);
  void once(const std::function<void(Round&)>& emit);
  void copy(const Range& dst, const Range& src);
  // Reserves elements of scratch and says where they begin.
  int64_t reserve(int64_t count);
};

}  // namespace braid::comm
