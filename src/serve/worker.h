// The thread that computes: the only one that runs the model. Others hand requests to it and wait for their replies.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/language_model.h"
#include "engine/scheduler.h"
#include "serve/histogram.h"
#include "serve/reply.h"

namespace braid::serve {

constexpr const char* kStopping = "the server is stopping";  // the error of requests that its shutdown interrupts

struct Work {
  engine::Request request{};    // its callbacks are the worker's
  bool splits_thinking = true;  // false: the text is a continuation as it is
  bool follows_think = false;   // first newlines are those behind the </think> of the prompt (engine/reasoning.h)
  bool progress = false;        // report how much of the prompt is read
  std::vector<std::string> stops{};
  bool stops_shown = false;  // a stop text, or one of generate.stop_ids, is part of the answer
};

// Since the start; gauges are as of now. Of prompt tokens, `cached_tokens` were not read.
struct Counters {
  int64_t requests = 0, prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0, running = 0, waiting = 0;
  engine::MemoryUse memory{};
  int64_t drafted_tokens = 0, accepted_tokens = 0;
  int64_t grammar_bytes = 0;
  int64_t stopped = 0, cut = 0, aborted = 0;  // requests that are over: at an end, at their limit, without either
  Latencies latencies{};                      // since the request came
};

class Worker {
 public:
  // The model's tokenizer is read before requests come. `cache_file`: where cached prefixes are between two processes;
  // empty: nowhere.
  Worker(engine::LanguageModel& model, std::string cache_file, engine::DraftOptions drafts = {});
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() { stop(); }

  // Ends what is running, with an error; later work ends so at once.
  void stop();
  // Why the file of cached prefixes was ignored; empty: it was not.
  const std::string& ignored() const { return ignored_; }
  // Writes it, between two passes, or after `stop`. Error when that fails.
  void save_cache();
  // From any thread.
  std::shared_ptr<Reply> submit(Work work, std::shared_ptr<Bell> bell);
  Counters counters() const;

 private:
  void load_cache();
  void write_cache();
  void run();
  void submit_now(engine::Request request);
  engine::Request with_callbacks(Work work, const std::shared_ptr<Reply>& reply);

  engine::LanguageModel& model_;
  engine::Scheduler scheduler_;  // of the thread
  std::string cache_file_, ignored_;
  uint64_t fingerprint_ = 0;  // of what the file is for
  std::string failure_;       // of the pass that failed, while its requests end
  mutable std::mutex mutex_;  // of what is below
  std::condition_variable changed_;
  std::vector<engine::Request> incoming_;
  std::vector<std::packaged_task<void()>> tasks_;
  Counters counters_;
  bool stop_ = false, ended_ = false;  // the thread should end; has ended
  std::thread thread_;
};

}  // namespace braid::serve
