// One answer on its way from the thread that computes to the one that waits for it.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/generate.h"
#include "engine/reasoning.h"

namespace braid::serve {

// How an answer ended. `error` is why it could not be completed, or empty.
struct Outcome {
  engine::Generated generated{};
  int64_t cached_tokens = 0, reasoning_tokens = 0;
  bool stopped = false;  // by a stop text
  std::string error{};
};

class Reply {
 public:
  using Parts = engine::ReasoningSplitter::Parts;
  struct News {
    Parts text{};
    bool done = false;
  };

  // For the waiting thread: what has come since the last call, after at most `patience`.
  News wait(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, patience, [&] { return done_ || !text_.reasoning.empty() || !text_.content.empty(); });
    return {std::exchange(text_, {}), done_};
  }
  void cancel() { cancelled_ = true; }                 // nobody waits any more
  const Outcome& outcome() const { return outcome_; }  // once done

  // For the computing thread.
  bool wanted() const { return !cancelled_; }
  void put(const Parts& parts) {
    if (parts.reasoning.empty() && parts.content.empty()) return;
    const std::lock_guard lock(mutex_);
    text_.reasoning += parts.reasoning;
    text_.content += parts.content;
    changed_.notify_one();
  }
  void finish(Outcome outcome) {
    const std::lock_guard lock(mutex_);
    outcome_ = std::move(outcome);
    done_ = true;
    changed_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Parts text_;
  Outcome outcome_;
  bool done_ = false;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace braid::serve
