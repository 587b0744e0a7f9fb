#include "comm/cell_exchange.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>

#include "comm/cells.h"
#include "comm/processes.h"
#include "sys/check.h"
#include "sys/error.h"

namespace braid::comm {
namespace {

constexpr int kLooks = 4000;       // before the core is given away: with one core for both, the other would never run
constexpr int kYieldsALook = 100;  // of the core, before a look at whether the other still runs

// Two inboxes, one a process, each with a slot for cells and room for a flag and plain data.
class Inboxes {
 public:
  Inboxes(int64_t payload, Processes& processes) : layout_{.slots = 1, .payload = payload}, processes_(processes) {
    bytes_ = static_cast<size_t>(2 * own_bytes());
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail_environment("comm cells", {.what = "no shared memory"});
    begin_ = static_cast<std::byte*>(memory);
  }
  Inboxes(const Inboxes&) = delete;
  Inboxes& operator=(const Inboxes&) = delete;
  ~Inboxes() { munmap(begin_, bytes_); }

  const cells::Layout& layout() const { return layout_; }
  std::byte* window(int rank) const { return begin_ + rank * own_bytes(); }
  std::atomic_ref<uint64_t> flag(int rank) const {
    return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(window(rank) + layout_.bytes()));
  }
  std::byte* data(int rank) const { return window(rank) + layout_.bytes() + 64; }
  void look() const { processes_.look(); }

 private:
  int64_t own_bytes() const { return layout_.bytes() + 64 + layout_.payload; }
  cells::Layout layout_;
  Processes& processes_;
  std::byte* begin_ = nullptr;
  size_t bytes_ = 0;
};

// Error when the other process has ended.
template <class Arrived>
void wait_until(const Inboxes& boxes, const Arrived& arrived) {
  for (int looks = 0, yields = 0; !arrived(); ++looks) {
    if (looks < kLooks) continue;
    sched_yield(), looks = 0;
    if (++yields % kYieldsALook == 0) boxes.look();
  }
}

void send(const Inboxes& boxes, bool as_cells, int to, uint64_t number, std::span<const std::byte> message) {
  if (as_cells) return cells::store(boxes.window(to), boxes.layout(), 0, number, message);
  std::memcpy(boxes.data(to), message.data(), message.size());
  boxes.flag(to).store(number, std::memory_order_release);
}

void receive(const Inboxes& boxes, bool as_cells, int own, uint64_t number, std::span<std::byte> message) {
  if (as_cells) {
    int64_t taken = 0;
    wait_until(boxes, [&] { return cells::take(boxes.window(own), boxes.layout(), 0, number, message, &taken); });
    return;
  }
  wait_until(boxes, [&] { return boxes.flag(own).load(std::memory_order_acquire) == number; });
  std::memcpy(message.data(), boxes.data(own), message.size());
}

// Messages there and back; each answer is what was sent. Seconds.
double play(const Inboxes& boxes, bool as_cells, int rank, int64_t bytes, int messages, uint64_t& number) {
  std::vector<std::byte> out(static_cast<size_t>(bytes)), in(out.size());
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < messages; ++i) {
    ++number;
    if (rank == 0) {
      if (!out.empty()) out[number % out.size()] = static_cast<std::byte>(number);
      send(boxes, as_cells, 1, number, out);
      receive(boxes, as_cells, 0, number, in);
      CHECK(in == out, "message {} of {} bytes came back with other bytes", number, bytes);
    } else {
      receive(boxes, as_cells, 1, number, in);
      send(boxes, as_cells, 0, number, in);
    }
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

std::vector<CellExchange> time_cells(std::span<const int64_t> sizes, int rounds, int messages,
                                     const sys::FunctionRef<void(int64_t)>& progress) {
  const int64_t most = sizes.empty() ? 0 : *std::max_element(sizes.begin(), sizes.end());
  CHECK(most <= cells::kPayloadMost && rounds > 0 && messages > 0, "{} bytes, {} rounds of {}", most, rounds, messages);
  Processes processes;
  const Inboxes boxes(cells::payload_for(most), processes);
  std::vector<CellExchange> times;
  const auto time_all = [&](int rank) {
    uint64_t number = 0;
    for (const int64_t bytes : sizes) {
      if (rank == 0) progress(std::ssize(times));
      CellExchange least{bytes, INFINITY, INFINITY};
      for (int round = 0; round <= rounds; ++round) {
        for (const bool as_cells : {true, false}) {
          const double s = play(boxes, as_cells, rank, bytes, messages, number);
          double& ns = as_cells ? least.cells_ns : least.flag_ns;
          if (round > 0) ns = std::min(ns, 1e9 * s / (2.0 * messages));  // the first warms up
        }
      }
      if (rank == 0) times.push_back(least);
    }
  };
  processes.run(2, time_all, [] {});  // nobody sleeps
  return times;
}

}  // namespace braid::comm
