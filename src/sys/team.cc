#include "sys/team.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>

#include "sys/check.h"
#include "sys/machine.h"

namespace braid::sys {
namespace {

using Word = std::atomic<uint32_t>;
static_assert(sizeof(Word) == sizeof(uint32_t) && Word::is_always_lock_free, "the kernel waits on the bare word");

void sleep_while(Word& word, uint32_t value) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}
void wake(Word& word) { syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0); }

int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int64_t involuntary_switches() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

// Regions of a small model are up to a few hundred microseconds apart, and waking a thread takes 5 to 50.
constexpr int64_t kSpinUs = 1000, kSpinCrowdedUs = 20, kCrowdedUs = 100'000;
constexpr int64_t kPreemptedUs = 100;  // clock reads are 1 us apart, or a few with an interrupt

void call(const Team::Body& body, int part, int parts) noexcept {
  try {
    body(part, parts);
  } catch (const std::exception& e) {
    CHECK(false, "the body of a parallel region threw: {}", e.what());
  } catch (...) {
    CHECK(false, "the body of a parallel region threw");
  }
}

}  // namespace

Team& Team::of_process() {
  static Team& team = [&]() -> Team& {
    // A child of fork() has the team's memory and none of its threads.
    pthread_atfork(nullptr, nullptr, [] {
      of_process().workers_.clear();
      of_process().busy_.store(false, std::memory_order_relaxed);
    });
    return *std::make_unique<Team>().release();
  }();
  return team;
}

// Workers block all signals but their own faults: Ctrl-C has to interrupt reads of the main thread. If no more threads
// can be created, the caller runs their parts.
void Team::grow(int workers) {
  sigset_t blocked, before;
  sigfillset(&blocked);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) sigdelset(&blocked, fault);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  try {
    while (std::ssize(workers_) < workers) {
      auto worker = std::make_unique<Worker>();
      std::thread([this, &its = *worker, part = static_cast<int>(workers_.size()) + 1] { work(its, part); }).detach();
      workers_.push_back(std::move(worker));
    }
  } catch (const std::system_error&) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Team::spin_while(const Word& word, uint32_t value) {
  int64_t last = now_us();
  const int64_t end = last + (last < crowded_until_us_.load(std::memory_order_relaxed) ? kSpinCrowdedUs : kSpinUs);
  while (last < end) {
    for (int i = 0; i < 16; ++i) {
      if (word.load(std::memory_order_relaxed) != value) return;
      __builtin_ia32_pause();
    }
    const int64_t now = now_us();
    if (now - last > kPreemptedUs) return crowded_until_us_.store(now + kCrowdedUs, std::memory_order_relaxed);
    last = now;
  }
}

void Team::work(Worker& worker, int part) {
  Word& state = worker.state;
  // A team larger than the machine does not spin: it would take cores from its own threads.
  const bool spin = part < machine().cores;
  for (;;) {
    if (spin) spin_while(state, kIdle);
    uint32_t seen = kIdle;
    if (state.compare_exchange_strong(seen, kAsleep, std::memory_order_relaxed)) seen = kAsleep;
    while (seen == kAsleep) {
      sleep_while(state, kAsleep);
      seen = state.load(std::memory_order_relaxed);
    }
    // Fails if the caller has run the part meanwhile.
    seen = kPosted;
    if (!state.compare_exchange_strong(seen, kRunning, std::memory_order_acquire)) continue;
    call(*body_, part, parts_);
    if (state.load(std::memory_order_relaxed) == kAwaited) {  // the caller has waited too long
      const int64_t switches = involuntary_switches();
      if (std::exchange(worker.switches, switches) < switches)
        crowded_until_us_.store(now_us() + kCrowdedUs, std::memory_order_relaxed);
    }
    if (state.exchange(kIdle, std::memory_order_release) == kAwaited) wake(state);
  }
}

void Team::await(Worker& worker) {
  if (parts_ <= machine().cores) spin_while(worker.state, kRunning);
  uint32_t seen = kRunning;
  if (worker.state.compare_exchange_strong(seen, kAwaited, std::memory_order_acquire)) seen = kAwaited;
  while (seen == kAwaited) {
    sleep_while(worker.state, kAwaited);
    seen = worker.state.load(std::memory_order_acquire);
  }
}

void Team::run(int parts, Body body) {
  if (parts <= 1) return call(body, 0, 1);
  CHECK(!busy_.exchange(true, std::memory_order_acquire),
        "a team of {} was requested inside a region, or by a second thread", parts);
  if (std::ssize(workers_) < parts - 1) grow(parts - 1);
  const auto workers = std::min(workers_.size(), static_cast<size_t>(parts) - 1);
  body_ = &body;
  parts_ = parts;
  for (size_t i = 0; i < workers; ++i) {
    Word& state = workers_[i]->state;
    if (state.exchange(kPosted, std::memory_order_release) == kAsleep) wake(state);
  }
  call(body, 0, parts);
  for (size_t i = 0; i < workers; ++i) {
    uint32_t seen = kPosted;
    if (workers_[i]->state.compare_exchange_strong(seen, kIdle, std::memory_order_relaxed))
      call(body, static_cast<int>(i) + 1, parts);
  }
  for (int part = static_cast<int>(workers) + 1; part < parts; ++part) call(body, part, parts);
  for (size_t i = 0; i < workers; ++i) await(*workers_[i]);
  busy_.store(false, std::memory_order_release);
}

}  // namespace braid::sys
