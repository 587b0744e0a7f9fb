// The answers to one client's request, while they are being computed: n of every prompt. The first answer of a prompt
// begins alone; the others follow when it has begun, and continue from the state of the prompt that it left. Only some
// of a thousand wait for their turn at a time, so that a large request takes no more of the server than a few small
// ones.
#pragma once
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "serve/asked.h"
#include "serve/reply.h"
#include "serve/request_log.h"
#include "serve/worker.h"

namespace braid::serve {

class Answers {
 public:
  // `record` is kept up with what comes.
  Answers(Worker& worker, const std::vector<Asked>& asked, RequestRecord& record);
  Answers(const Answers&) = delete;
  Answers& operator=(const Answers&) = delete;
  ~Answers();  // nobody waits for them any more

  struct Update {
    size_t answer;
    Reply::News news;
  };
  // What has come since the last call, after at most `patience`; of a done answer there is no news. Empty: nothing.
  std::vector<Update> wait(std::chrono::milliseconds patience);
  size_t size() const { return replies_.size(); }
  bool done() const { return left_ == 0; }
  // Of an answer that is done.
  const Outcome& outcome(size_t answer) const { return replies_[answer]->outcome(); }
  std::vector<const Outcome*> outcomes() const;

 private:
  static constexpr int64_t kWaitingMax = 32;  // enough for the places that become free meanwhile
  void submit(size_t answer);
  void submit_some();
  void note(size_t answer, const Reply::News& news);

  Worker& worker_;
  const std::vector<Asked>& asked_;
  RequestRecord& record_;
  RequestRecord::Clock::time_point submitted_ = RequestRecord::Clock::now();
  size_t n_, left_;
  std::shared_ptr<Bell> bell_ = std::make_shared<Bell>();
  std::vector<std::shared_ptr<Reply>> replies_;  // null: not begun
  std::deque<size_t> ready_;                     // may be submitted, in this order
  int64_t waiting_ = 0;                          // submitted and not begun
  std::vector<bool> over_, waits_;
  std::vector<bool> others_;     // by prompt: its answers beside the first are ready, or further
  std::vector<int64_t> tokens_;  // of each answer so far
};

}  // namespace braid::serve
