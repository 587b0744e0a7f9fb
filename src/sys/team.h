// The threads behind parallel(). A waiting thread spins, because the next region of a pass follows at once, and then
// sleeps, because on a busy machine a spinning thread takes the core from the one it waits for. A thread that was
// preempted shows that the cores are contended: all spins are then short for a tenth of a second. A part whose worker
// has not started when the caller is done with its own is run by the caller: a worker that is not scheduled delays
// nobody.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "sys/function_ref.h"

namespace braid::sys {

class Team {
 public:
  using Body = FunctionRef<void(int, int)>;

  // The team of this process, or of this child after a fork. Never destroyed: its threads sleep until the process ends.
  static Team& of_process();

  // body(part, parts) for each part, the first on the calling thread. Entering twice, by a nested call or from a second
  // thread, is a CHECK; so is a body that throws.
  void run(int parts, Body body);

 private:
  // A worker that is idle or asleep has no part, posted one that it has not begun, running or awaited one that it has.
  // When asleep the worker sleeps, when awaited the caller does; the other side then wakes it.
  enum State : uint32_t { kIdle, kAsleep, kPosted, kRunning, kAwaited };
  struct alignas(64) Worker {
    std::atomic<uint32_t> state{kIdle};
    int64_t switches = 0;  // involuntary context switches, when last counted
  };

  void grow(int workers);
  void work(Worker& worker, int part);
  void await(Worker& worker);
  void spin_while(const std::atomic<uint32_t>& word, uint32_t value);

  std::vector<std::unique_ptr<Worker>> workers_;  // of parts 1, 2, ...
  std::atomic<bool> busy_{false};
  // Of the current region; written before parts are posted, read by workers that have taken one.
  const Body* body_ = nullptr;
  int parts_ = 0;
  std::atomic<int64_t> crowded_until_us_{0};  // spins are short until then
};

}  // namespace braid::sys
