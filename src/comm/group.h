// Collective operations among ranks. A Group is a rank's view of a set of ranks; all of them make the same calls in the
// same order. A call starts an operation and gives a handle; its buffers belong to it until the handle was waited for.
// Several may be in flight, and are waited for in any order; they progress while any handle of the rank is waited for.
//
// Views are contiguous and on the CPU; only their element counts matter, not their shapes. Counts are in elements. `in`
// and `out` are either apart or the call is in place: the same bytes for all-reduce, reduce and all-to-all; this rank's
// block of `out` for all-gather; anywhere inside `in` for reduce-scatter, which then destroys what `out` covers.
//
// A result does not depend on timing: the order of additions is the algorithm's. All-reduce gives every rank the same
// bits. Floating-point sums have one rounding for each addition (reduction.h).
//
// Errors: a peer that is not heard of for Options::timeout, a message of an unexpected size, and, with compare_calls, a
// peer that makes another call. After one of them the group cannot be used any more.
#pragma once
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/algorithm.h"
#include "comm/call.h"
#include "core/view.h"

namespace braid::comm {

#ifdef NDEBUG
constexpr bool kCompareCalls = false;
#else
constexpr bool kCompareCalls = true;
#endif

struct Options {
  std::chrono::milliseconds timeout{600'000};  // without any progress
  int per_node = 1;                            // ranks of a node; nodes are consecutive ranks
  int on_machine = 0;                          // ranks on this machine, which may differ from rank to rank; 0: all
  bool compare_calls = kCompareCalls;          // hash the calls of a group and compare with every message
  bool alone = false;                          // every call is waited for before the next: one may block
  std::string nccl{};                          // the file of NCCL, for collectives of its own (nccl.h); empty: none
};

class Selector;

// What drives the calls of one rank: made with its world, shared by all groups split from it.
class Engine {
 public:
  Engine(std::unique_ptr<Transport> transport, const Options& options);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();
  // Nothing else of this happens while it is held; a call is made and started under it.
  std::unique_lock<std::mutex> hold() { return std::unique_lock(mutex_); }
  void start(const std::shared_ptr<Call>& call);
  void wait(Call& call);
  bool poll(const Call& call);
  void give_up(const Call& call) noexcept;
  void drive(bool on);

  Transport& transport() { return *transport_; }
  const Options& options() const { return options_; }
  Traffic& traffic() { return traffic_; }
  uint32_t contexts = 1;                       // the number of the next group
  std::shared_ptr<const Selector> selector{};  // of calls that name no algorithm; null: by size

 private:
  void advance_all();
  void drive_calls();
  [[noreturn]] void time_out(const Call& call);

  std::unique_ptr<Transport> transport_;
  Options options_;
  Traffic traffic_;
  std::vector<std::shared_ptr<Call>> active_;
  int64_t steps_ = 0;

  std::mutex mutex_;  // of everything above, for the sake of the driver
  std::condition_variable wake_;
  bool driving_ = false, ending_ = false;
  std::exception_ptr failure_;  // of the driver; the next look at a call that is not over throws it
  std::thread driver_;
};

class [[nodiscard]] Handle {
 public:
  Handle(std::shared_ptr<Engine> engine, std::shared_ptr<Call> call)
      : engine_(std::move(engine)), call_(std::move(call)) {}
  Handle(Handle&&) = default;
  Handle& operator=(Handle&&) = delete;
  // A call that was not waited for is abandoned: its buffers may be about to go.
  ~Handle();
  void wait();
  bool done();

 private:
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Call> call_;
};

class Group {
 public:
  // All ranks of a transport.
  Group(std::unique_ptr<Transport> transport, const Options& options);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  int per_node() const { return per_node_; }  // 0: nodes of this group are uneven
  // Ranks of the world, this one included, that share the cores and the memory of this one's machine.
  int on_this_machine() const {
    const int near = engine_->options().on_machine;
    return near > 0 ? near : engine_->transport().size();
  }

  // Groups of the ranks with equal colours, in the order of (key, rank). All ranks of this group call it.
  Group split(int colour, int key = 0);

  // Messages between two ranks arrive in order for each tag.
  Handle send(const View& x, int peer, uint16_t tag = 0);
  Handle recv(const MutView& x, int peer, uint16_t tag = 0);

  // `algorithm`: a name of algorithm.h; empty: chosen by size, or as choose_by says.
  Handle barrier(std::string_view algorithm = {});
  Handle broadcast(const MutView& x, int root, std::string_view algorithm = {});
  // `out` of other ranks than the root may be empty.
  Handle reduce(const View& in, const MutView& out, Reduction op, int root, std::string_view algorithm = {});
  Handle all_reduce(const View& in, const MutView& out, Reduction op = Reduction::sum, std::string_view algorithm = {});
  // `counts`: elements of every rank's block, the same list on all ranks; empty: all blocks are equal.
  Handle all_gather(const View& in, const MutView& out, std::span<const int64_t> counts = {},
                    std::string_view algorithm = {});
  Handle reduce_scatter(const View& in, const MutView& out, Reduction op = Reduction::sum,
                        std::span<const int64_t> counts = {}, std::string_view algorithm = {});
  // Block b of `in` goes to rank b, block b of `out` comes from it; empty counts: all blocks are equal.
  Handle all_to_all(const View& in, const MutView& out, std::span<const int64_t> sent = {},
                    std::span<const int64_t> received = {}, std::string_view algorithm = {});

  // From now on, until it is switched off, a thread makes the calls of this world progress while the rank computes.
  // Nothing else changes: one thread of the rank makes calls and waits for them.
  void drive(bool on) { engine_->drive(on); }
  // The algorithm of such a call that names none.
  const Algorithm& chosen(Op op, const Blocks& blocks, DType type) const;

  // From now on calls that name no algorithm, of all groups of this world, take what was fastest in the timed calls of
  // `times` (selector.h). All ranks of the world call it; those of rank 0 hold. Error as read_times, with `where`.
  void choose_by(std::string_view where, std::string times);
  bool chooses_by_times() const { return engine_->selector != nullptr; }

  // Of this rank in all groups of its world.
  const Traffic& traffic() const { return engine_->traffic(); }
  // In this group alone.
  const Traffic& own_traffic() const { return *own_traffic_; }

 private:
  Group(std::shared_ptr<Engine> engine, std::vector<int> members, int rank, uint32_t context);
  void check_peer(int peer) const;
  Problem problem(Op op, const Blocks& blocks, DType type) const;
  struct Bytes {
    View in{};
    MutView out{};
    Reduction op = Reduction::sum;
  };
  Handle start(const Problem& p, const Bytes& bytes, std::string_view algorithm);
  Handle start(Schedule schedule, const Bytes& bytes, CallSite site);
  template <class Make>
  Handle begin(const Make& make);
  Handle start_native(const Problem& p, const Bytes& bytes, const Algorithm& algorithm);

  std::shared_ptr<Engine> engine_;  // shared with handles and with groups split from this one
  std::shared_ptr<Traffic> own_traffic_ = std::make_shared<Traffic>();  // shared with its calls
  std::vector<int> members_;                                            // ranks of the world
  int rank_ = 0, per_node_ = 1;
  uint32_t context_ = 0, calls_ = 0;
  std::map<uint64_t, uint64_t> cell_messages_;  // by window: messages so far
  uint64_t history_ = 0;                        // hash of the calls so far
};

}  // namespace braid::comm
