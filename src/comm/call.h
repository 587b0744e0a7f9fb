// A call in flight: a schedule played over a transport. It never blocks.
#pragma once
#include <array>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "comm/player.h"
#include "comm/transport.h"

namespace braid::comm {

// What ranks sent, exactly: payload, and cells at the size they have on the wire. Level 0: within a node, 1: between
// nodes.
struct Traffic {
  std::array<int64_t, 2> bytes{}, messages{};
};

// What a call has to know besides its schedule.
struct CallSite {
  std::string where{};         // "all_reduce ring", for errors
  uint64_t tag = 0;            // lane 0 of this call in this group
  uint64_t check = 0;          // compared with the senders'
  bool compare = false;        // the checks
  std::vector<int> members{};  // rank in the group -> rank of the transport
  int per_node = 1;            // of the transport's ranks
  uint32_t context = 0;
  cells::Layout window{};
  uint64_t cell_base = 0;              // the number before that of the first cells
  std::shared_ptr<Traffic> traffic{};  // of the group, counted besides that of the rank
};

class Call {
 public:
  Call(Player player, CallSite site, Transport& transport, Traffic& traffic);
  // One that the transport does itself: what it sends is not counted.
  Call(const NativeCall& native, CallSite site, Transport& transport, Traffic& traffic);
  // Goes as far as it can. True when it is over, false when it waits for messages.
  bool advance();
  bool over() const { return over_; }
  bool polls() const { return cells_open_ > 0; }  // waits for cells, which wake nobody
  int64_t steps() const { return steps_; }        // grows with every message that is done
  // The rank, in the group, of a message that is not done, and whether this rank is the one that receives it. Without
  // such a rank, -1, the transport's own collective is not over.
  struct Missing {
    int peer = -1;
    bool receiving = true;
  };
  Missing missing() const;
  const std::string& where() const { return site_.where; }
  const std::vector<int>& members() const { return site_.members; }

 private:
  struct Cells {
    std::byte* own = nullptr;
    std::byte* peer = nullptr;
    uint64_t number = 0;
    int64_t taken = 0;
    bool done = false;
  };
  struct Open {
    const Transfer* transfer = nullptr;  // null: a collective of the transport's own
    Message message{};
    std::vector<std::byte> staging{};
    Cells cells{};
    bool done() const { return cells.own ? cells.done : message.done; }
    bool counted = false;
  };
  void post_round();
  void post(const Transfer& t);
  void post_message(const Transfer& t, Open& open);
  void advance_cells(Open& open);
  void accept(Open& open);

  Player player_;
  CallSite site_;
  Transport& transport_;
  Traffic& traffic_;
  std::deque<Open> open_;  // a deque: transports hold pointers to messages
  int cells_open_ = 0;
  int64_t steps_ = 0;
  bool over_ = false;
};

}  // namespace braid::comm
