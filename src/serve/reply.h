// One answer on its way from the thread that computes to the one that waits for it.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
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
  std::string stop{};    // which
  std::string error{};
};

// The text of a whole answer, put together from the parts.
struct Said {
  std::string reasoning, content;
};

// What the replies to one client share, so that one thread waits for all of them.
struct Bell {
  std::mutex mutex;
  std::condition_variable changed;
};

class Reply {
 public:
  using Parts = engine::ReasoningSplitter::Parts;
  // A token whose log-probabilities are asked for, and what it added to the text. Without any: a rest of text alone.
  struct Token {
    std::vector<engine::TokenLogprob> logprobs{};
    Parts text{};
  };
  struct News {
    Parts text{};
    std::vector<Token> tokens_scored{};  // since the last news, if asked for; their texts are `text`
    bool admitted = false;               // since the last news: its prompt is being read, but for
    int64_t cached_tokens = 0;           // what was cached of it
    int64_t read = -1;     // tokens of the prompt that are read by now, if that is asked for and has changed
    bool started = false;  // a token has been generated
    int64_t tokens = 0;    // generated so far
    bool done = false;
    bool silent() const {
      return !done && text.reasoning.empty() && text.content.empty() && tokens_scored.empty() && !admitted && read < 0;
    }
  };

  explicit Reply(std::shared_ptr<Bell> bell) : bell_(std::move(bell)) {}

  // For the waiting thread: what has come since the last call.
  News take() {
    const std::lock_guard lock(bell_->mutex);
    news_ = false;
    return {.text = std::exchange(text_, {}),
            .tokens_scored = std::exchange(tokens_scored_, {}),
            .admitted = std::exchange(admitted_, false),
            .cached_tokens = cached_tokens_,
            .read = std::exchange(read_, -1),
            .started = started_,
            .tokens = tokens_,
            .done = done_};
  }
  bool news() const { return news_; }                  // with the bell's mutex held
  void cancel() { cancelled_ = true; }                 // nobody waits any more
  const Outcome& outcome() const { return outcome_; }  // once done

  // For the computing thread.
  bool wanted() const { return !cancelled_; }
  void admit(int64_t cached_tokens) {
    const std::lock_guard lock(bell_->mutex);
    admitted_ = true;
    cached_tokens_ = cached_tokens;
    ring();
  }
  void put_read(int64_t tokens) {
    const std::lock_guard lock(bell_->mutex);
    read_ = tokens;
    ring();
  }
  // What a further token adds to the text, if anything.
  void put(const Parts& parts) {
    const std::lock_guard lock(bell_->mutex);
    ++tokens_;
    if (std::exchange(started_, true) && parts.reasoning.empty() && parts.content.empty()) return;
    text_.reasoning += parts.reasoning;
    text_.content += parts.content;
    if (scored_) {
      if (tokens_scored_.empty()) tokens_scored_.emplace_back();
      tokens_scored_.back().text.reasoning += parts.reasoning;
      tokens_scored_.back().text.content += parts.content;
    }
    ring();
  }
  void put_logprobs(const std::vector<engine::TokenLogprob>& token) {
    const std::lock_guard lock(bell_->mutex);
    scored_ = true;
    tokens_scored_.push_back({token, {}});
  }
  void finish(Outcome outcome) {
    const std::lock_guard lock(bell_->mutex);
    outcome_ = std::move(outcome);
    done_ = true;
    ring();
  }

 private:
  void ring() {
    news_ = true;
    bell_->changed.notify_one();
  }

  std::shared_ptr<Bell> bell_;  // one for all replies of a request, and for the thread that waits
  Parts text_;
  std::vector<Token> tokens_scored_;
  Outcome outcome_;
  int64_t cached_tokens_ = 0, read_ = -1, tokens_ = 0;
  bool scored_ = false, news_ = false, admitted_ = false, started_ = false, done_ = false;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace braid::serve
