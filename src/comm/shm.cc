#include "comm/shm.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <new>

#include "comm/frames.h"
#include "comm/processes.h"
#include "sys/error.h"

namespace braid::comm {
namespace {

constexpr int64_t kWindowArena = int64_t{64} << 20;  // of a rank; memory that is not used takes none
constexpr int kWindowsMost = 256;

// A stream of bytes with one writer and one reader. Counters only grow.
struct alignas(64) RingCounters {
  alignas(64) std::atomic<uint64_t> written{0};
  alignas(64) std::atomic<uint64_t> read{0};
};

// What a rank sleeps on: every event that may concern it changes the number.
struct alignas(64) Doorbell {
  std::atomic<uint32_t> rings{0};
  std::atomic<uint32_t> asleep{0};

  void ring() {
    rings.fetch_add(1);
    if (asleep.load() != 0) syscall(SYS_futex, &rings, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  }
  void sleep(uint32_t seen, std::chrono::microseconds patience) {
    const timespec time = {patience.count() / 1'000'000, patience.count() % 1'000'000 * 1000};
    asleep.store(1);
    if (rings.load() == seen) syscall(SYS_futex, &rings, FUTEX_WAIT, seen, &time, nullptr, 0);
    asleep.store(0);
  }
};

struct WindowEntry {
  uint64_t key = 0;
  int64_t at = 0, bytes = 0;
};

// The start of the shared memory; rings, doorbells and arenas follow.
struct Shared {
  std::atomic<int> windows_lock{0};
  int windows = 0;
  int64_t window_bytes = 0;  // handed out, in every rank's arena alike
  WindowEntry window[kWindowsMost];
};

class Segment {
 public:
  explicit Segment(int size)
      : size_(size), capacity_(std::clamp<int64_t>((int64_t{8} << 20) / (int64_t{size} * size), 4096, 256 << 10)) {
    bytes_ = arena_at(size_);
    void* memory = mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
      fail_environment("comm shm", {.what = fmt::format("no {} bytes of shared memory: {}", bytes_, strerror(errno))});
    base_ = static_cast<std::byte*>(memory);
    new (base_) Shared;
    for (int r = 0; r < size_; ++r) new (&bell(r)) Doorbell;
    for (int pair = 0; pair < size_ * size_; ++pair) new (&counters(pair / size_, pair % size_)) RingCounters;
  }
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment() { munmap(base_, static_cast<size_t>(bytes_)); }

  int size() const { return size_; }
  int64_t capacity() const { return capacity_; }
  Shared& shared() { return *reinterpret_cast<Shared*>(base_); }
  Doorbell& bell(int rank) { return reinterpret_cast<Doorbell*>(base_ + kBells)[rank]; }
  RingCounters& counters(int from, int to) {
    return reinterpret_cast<RingCounters*>(base_ + counters_at())[from * size_ + to];
  }
  std::byte* ring(int from, int to) { return base_ + rings_at() + (int64_t{from} * size_ + to) * capacity_; }
  std::byte* arena(int rank) { return base_ + arena_at(rank); }

  void ring_all() {
    for (int r = 0; r < size_; ++r) bell(r).ring();
  }

 private:
  static constexpr int64_t kBells = (sizeof(Shared) + 63) / 64 * 64;
  int64_t counters_at() const { return kBells + size_ * int64_t{sizeof(Doorbell)}; }
  int64_t rings_at() const { return counters_at() + int64_t{size_} * size_ * int64_t{sizeof(RingCounters)}; }
  int64_t arena_at(int rank) const {
    return (rings_at() + int64_t{size_} * size_ * capacity_ + 4095) / 4096 * 4096 + rank * kWindowArena;
  }

  int size_;
  int64_t capacity_, bytes_ = 0;
  std::byte* base_ = nullptr;
};

class SharedMemory final : public Transport {
 public:
  SharedMemory(Segment& segment, Processes& processes, int rank)
      : segment_(segment), processes_(processes), rank_(rank), writers_(static_cast<size_t>(segment.size())) {
    for (int peer = 0; peer < segment.size(); ++peer) readers_.emplace_back(peer, mailbox_);
  }
  int rank() const override { return rank_; }
  int size() const override { return segment_.size(); }
  void send(Message& m) override {
    writers_[static_cast<size_t>(m.peer)].add(m);
    write_to(m.peer);
  }
  void recv(Message& m) override { mailbox_.recv(m); }
  void progress(std::chrono::microseconds patience) override;
  void forget() noexcept override {
    mailbox_.forget();
    for (FrameWriter& writer : writers_) writer.forget();
    for (FrameReader& reader : readers_) reader.forget();
  }
  std::byte* window(uint64_t key, int rank, int64_t bytes) override;

 private:
  bool write_to(int peer);
  bool read_from(int peer);

  Segment& segment_;
  Processes& processes_;
  int rank_;
  Mailbox mailbox_;
  std::vector<FrameWriter> writers_;
  std::deque<FrameReader> readers_;
  std::map<uint64_t, int64_t> windows_;  // offsets in arenas; -1: no room
};

bool SharedMemory::write_to(int peer) {
  FrameWriter& writer = writers_[static_cast<size_t>(peer)];
  RingCounters& ring = segment_.counters(rank_, peer);
  const auto capacity = static_cast<uint64_t>(segment_.capacity());
  bool moved = false;
  while (!writer.empty()) {
    const uint64_t written = ring.written.load(std::memory_order_relaxed);
    const uint64_t room = capacity - (written - ring.read.load(std::memory_order_acquire));
    const auto bytes = writer.pending();
    const size_t n =
        std::min({bytes.size(), static_cast<size_t>(room), static_cast<size_t>(capacity - written % capacity)});
    if (n == 0) break;
    std::memcpy(segment_.ring(rank_, peer) + written % capacity, bytes.data(), n);
    ring.written.store(written + n, std::memory_order_release);
    writer.sent(n);
    moved = true;
  }
  if (moved) segment_.bell(peer).ring();
  return moved;
}

bool SharedMemory::read_from(int peer) {
  RingCounters& ring = segment_.counters(peer, rank_);
  const auto capacity = static_cast<uint64_t>(segment_.capacity());
  bool moved = false;
  while (true) {
    const uint64_t read = ring.read.load(std::memory_order_relaxed);
    const uint64_t there = ring.written.load(std::memory_order_acquire) - read;
    if (there == 0) break;
    const auto room = readers_[static_cast<size_t>(peer)].room();
    const size_t n =
        std::min({room.size(), static_cast<size_t>(there), static_cast<size_t>(capacity - read % capacity)});
    std::memcpy(room.data(), segment_.ring(peer, rank_) + read % capacity, n);
    ring.read.store(read + n, std::memory_order_release);
    readers_[static_cast<size_t>(peer)].got(n);
    moved = true;
  }
  if (moved) segment_.bell(peer).ring();  // it may wait for room
  return moved;
}

void SharedMemory::progress(std::chrono::microseconds patience) {
  const uint32_t seen = segment_.bell(rank_).rings.load();
  bool moved = false;
  for (int peer = 0; peer < size(); ++peer) {
    moved |= read_from(peer);
    moved |= write_to(peer);
  }
  if (moved) return;
  processes_.look();
  if (patience.count() > 0) segment_.bell(rank_).sleep(seen, patience);
}

// Every rank's arena is laid out alike, so that the first rank to ask places a window for all.
std::byte* SharedMemory::window(uint64_t key, int rank, int64_t bytes) {
  auto [known, fresh] = windows_.try_emplace(key, -1);
  if (fresh) {
    Shared& shared = segment_.shared();
    while (shared.windows_lock.exchange(1, std::memory_order_acquire) != 0) {
      processes_.look();  // the rank that holds it may have ended
      sched_yield();
    }
    for (int i = 0; i < shared.windows; ++i) {
      if (shared.window[i].key == key) known->second = shared.window[i].at;
    }
    if (known->second < 0 && shared.windows < kWindowsMost) {
      const bool fits = bytes <= kWindowArena - shared.window_bytes;
      if (fits) known->second = std::exchange(shared.window_bytes, shared.window_bytes + (bytes + 63) / 64 * 64);
      // That there is no room is recorded, too, so that all ranks agree.
      shared.window[shared.windows++] = {key, known->second, bytes};
    }
    shared.windows_lock.store(0, std::memory_order_release);
  }
  return known->second < 0 ? nullptr : segment_.arena(rank) + known->second;
}

}  // namespace

void run_in_processes(int size, const Options& options, const std::function<void(Group& world)>& body) {
  Segment segment(size);
  Processes processes;
  processes.run(
      size,
      [&](int rank) {
        Group world(std::make_unique<SharedMemory>(segment, processes, rank), options);
        body(world);
      },
      [&] { segment.ring_all(); });
}

}  // namespace braid::comm
