#include "serve/worker.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <system_error>
#include <utility>

#include "engine/fingerprint.h"
#include "engine/reasoning.h"
#include "engine/stop_texts.h"
#include "sys/error.h"
#include "text/tokenizer.h"

namespace braid::serve {
namespace {

// The text of one answer as its tokens come.
class AnswerText {
 public:
  AnswerText(engine::LanguageModel& model, const Work& work)
      : model_(model),
        decoder_(model.tokenizer(), false),
        splitter_(work.request.generate.thinking == engine::Thinking::open, work.follows_think),
        stops_(work.stops, work.stops_shown),
        splits_(work.splits_thinking),
        tokens_min_(work.request.generate.tokens_min) {}

  Reply::Parts push(int32_t id) {
    ++tokens_;
    reasoning_tokens_ += splits_ && splitter_.thinking();
    return model_.is_silent(id) ? Reply::Parts{} : shown(decoder_.push(id));
  }
  Reply::Parts finish() {
    Reply::Parts out = shown(decoder_.finish());
    const Reply::Parts rest = splits_ ? splitter_.finish() : Reply::Parts{};
    out.reasoning += rest.reasoning;
    out.content += stops_.push(rest.content);
    out.content += stops_.finish();
    return out;
  }
  bool stopped() const { return stops_.found(); }
  const std::string& stop() const { return stops_.which(); }
  int64_t reasoning_tokens() const { return reasoning_tokens_; }

 private:
  Reply::Parts shown(const std::string& text) {
    Reply::Parts out = splits_ ? splitter_.push(text) : Reply::Parts{"", text};
    if (tokens_ >= tokens_min_) out.content = stops_.push(out.content);
    return out;
  }

  engine::LanguageModel& model_;
  text::StreamDecoder decoder_;
  engine::ReasoningSplitter splitter_;
  engine::StopTexts stops_;
  bool splits_;
  int64_t tokens_min_, tokens_ = 0, reasoning_tokens_ = 0;
};

// Of one request, in seconds since it came.
struct RequestClock {
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  double started = 0, first = -1, last = -1;  // its first pass, first and last token; -1: none yet
  int64_t tokens = 0;                         // that came; an end token does not

  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); }
  void token(Latencies& all) {
    const double now = seconds();
    if (first < 0) {
      first = now;
      all.first_token.add(now);
    } else {
      all.between.add(now - last);
    }
    last = now;
    ++tokens;
  }
  void end(Latencies& all) const {
    const double now = seconds();
    all.whole.add(now);
    all.queue.add(started);
    if (first < 0) return;
    all.prefill.add(first - started);
    all.decode.add(now - first);
    if (tokens > 1) all.per_token.add((last - first) / static_cast<double>(tokens - 1));
  }
};

}  // namespace

Worker::Worker(engine::LanguageModel& model, std::string cache_file, engine::DraftOptions drafts)
    : model_(model), scheduler_(model.runner(), std::move(drafts)), cache_file_(std::move(cache_file)) {
  (void)model.grammars();  // from here on of several threads
  load_cache();
  thread_ = std::thread([this] { run(); });
}

void Worker::load_cache() {
  if (cache_file_.empty() || !scheduler_.cache()) return;
  fingerprint_ = engine::fingerprint_of(model_);
  try {
    scheduler_.cache()->load(cache_file_, fingerprint_);
  } catch (const Error& e) {
    ignored_ = e.what();
  }
}

void Worker::write_cache() {
  if (cache_file_.empty() || !scheduler_.cache()) return;
  // A file that was ignored may be good for other options: it is put aside.
  if (!std::exchange(ignored_, {}).empty()) {
    std::error_code none;
    std::filesystem::rename(cache_file_, cache_file_ + ".old", none);
  }
  scheduler_.cache()->save(cache_file_, fingerprint_);
}

void Worker::save_cache() {
  std::packaged_task<void()> task([this] { write_cache(); });
  std::future<void> done = task.get_future();
  {
    std::unique_lock lock(mutex_);
    if (stop_ && !ended_) fail_environment("cache", {.what = kStopping});
    if (stop_) {  // the thread has ended
      lock.unlock();
      return write_cache();
    }
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
  done.get();
}

void Worker::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
  const std::lock_guard lock(mutex_);
  ended_ = true;
}

engine::Request Worker::with_callbacks(Work work, const std::shared_ptr<Reply>& reply) {
  const auto text = std::make_shared<AnswerText>(model_, work);
  const bool progress = work.progress;
  const std::vector<int32_t> shown_ends = work.stops_shown ? work.request.generate.stop_ids : std::vector<int32_t>{};
  engine::Request request = std::move(work.request);
  request.wanted = [reply] { return reply->wanted(); };
  const auto clock = std::make_shared<RequestClock>();
  request.on_start = [reply, clock](int64_t cached) {
    clock->started = clock->seconds();
    reply->admit(cached);
  };
  if (progress) request.on_read = [reply](int64_t tokens) { reply->put_read(tokens); };
  request.on_logprobs = [reply](const std::vector<engine::TokenLogprob>& token) { reply->put_logprobs(token); };
  request.on_token = [this, reply, text, clock](int32_t id) {
    {
      const std::lock_guard lock(mutex_);
      clock->token(counters_.latencies);
    }
    reply->put(text->push(id));
    return !text->stopped();
  };
  request.on_end = [this, reply, text, clock, shown_ends](engine::Generated generated, int64_t cached) {
    std::string error = failure_.empty() ? generated.error : failure_;
    const bool stopped = generated.finish == engine::Finish::stop && !generated.ids.empty();
    try {
      if (stopped && std::ranges::find(shown_ends, generated.ids.back()) != shown_ends.end())
        reply->put(text->push(generated.ids.back()));
      reply->put(text->finish());
    } catch (const std::exception& e) {  // the client still learns that it is over
      if (error.empty()) error = e.what();
    }
    {
      const std::lock_guard lock(mutex_);
      const bool cut = generated.finish == engine::Finish::length;
      const bool cancelled = generated.finish == engine::Finish::cancelled && !text->stopped();
      const bool aborted = cancelled || !error.empty();
      ++(aborted ? counters_.aborted : cut ? counters_.cut : counters_.stopped);
      if (!aborted) clock->end(counters_.latencies);
      counters_.prompt_tokens += generated.timings.prompt_tokens + cached;
      counters_.cached_tokens += cached;
      counters_.generated_tokens += generated.timings.generated_tokens;
      counters_.drafted_tokens += generated.timings.drafted_tokens;
      counters_.accepted_tokens += generated.timings.accepted_tokens;
    }
    reply->finish({.generated = std::move(generated),
                   .cached_tokens = cached,
                   .reasoning_tokens = text->reasoning_tokens(),
                   .stopped = text->stopped(),
                   .stop = text->stop(),
                   .error = std::move(error)});
  };
  return request;
}

std::shared_ptr<Reply> Worker::submit(Work work, std::shared_ptr<Bell> bell) {
  auto reply = std::make_shared<Reply>(std::move(bell));
  engine::Request request = with_callbacks(std::move(work), reply);
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return reply->finish({.error = kStopping}), reply;
    ++counters_.requests;
    incoming_.push_back(std::move(request));
  }
  changed_.notify_one();
  return reply;
}

// A request that the scheduler refuses ends alone.
void Worker::submit_now(engine::Request request) {
  const auto on_end = request.on_end;
  try {
    scheduler_.submit(std::move(request));
  } catch (const std::exception& e) {
    engine::Generated none{.finish = engine::Finish::cancelled};
    none.error = e.what();
    on_end(std::move(none), 0);
  }
}

void Worker::run() {
  for (bool stopped = false; true;) {
    std::vector<engine::Request> taken;
    std::vector<std::packaged_task<void()>> tasks;
    const int64_t grammar_bytes = model_.grammars().trim();
    {
      std::unique_lock lock(mutex_);
      counters_.grammar_bytes = grammar_bytes;
      counters_.running = scheduler_.running();
      counters_.waiting = scheduler_.waiting();
      counters_.memory = scheduler_.memory();
      changed_.wait(lock, [&] { return stop_ || !incoming_.empty() || !tasks_.empty() || !scheduler_.idle(); });
      tasks = std::exchange(tasks_, {});
      stopped = stop_;
      if (!stop_) taken = std::exchange(incoming_, {});
    }
    for (auto& task : tasks) task();
    if (stopped) break;
    for (engine::Request& request : taken) submit_now(std::move(request));
    try {
      scheduler_.pass();
    } catch (const std::exception& e) {  // an Error, or out of memory
      failure_ = e.what();
      scheduler_.cancel();
      failure_.clear();
    }
  }
  failure_ = kStopping;
  for (engine::Request& request : incoming_) submit_now(std::move(request));  // nobody adds to them any more
  scheduler_.cancel();
}

Counters Worker::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

}  // namespace braid::serve
