// Answers to many prompts with continuous batching: each pass reads one token of every answer that is being generated
// and, beside them, pieces of unread prompts. When an answer ends, the next request takes its
// sequence. By the row contract an answer does not depend on the others in the batch; where it continues from a cached
// prefix, which was cut elsewhere, that is so within the bound of the scan's forms, and bit for bit under --exact. What
// eval and the server share.
#pragma once
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/prefix_cache.h"
#include "engine/runner.h"
#include "engine/token_picker.h"
#include "sys/function_ref.h"

namespace braid::engine {

struct Request {
  std::vector<int32_t> prompt{};
  GenerateOptions generate{};
  // Positions in the prompt, ascending, whose states later prompts may continue from: where the next turn of a
  // conversation will differ from this one. The end of an answer is always one.
  std::vector<int64_t> marks{};
  // Alternatives whose log-probabilities are returned for every token of the prompt; -1: no log-probabilities of the
  // prompt. Such a prompt is read whole: the states of a cached prefix have no logits. With tokens_max 0 nothing is
  // generated, and the prompt may fill the context.
  int64_t prompt_logprobs = -1;
  // Called from `pass`, `submit` and `cancel`; each may be empty. `wanted` is asked before every pass and ends the
  // request when it is false; `on_logprobs` sees the log-probabilities of each token, the end token's too, if they are
  // asked for; `on_token` sees each token but the end token, and false ends the answer; `on_end` is called once, and
  // may submit another request.
  std::function<bool()> wanted{};
  std::function<void(int64_t cached_tokens)> on_start{};  // it has a sequence
  std::function<void(const std::vector<TokenLogprob>&)> on_logprobs{};
  std::function<bool(int32_t)> on_token{};
  std::function<void(Generated, int64_t cached_tokens)> on_end{};
};

class Scheduler {
 public:
  // `cached` of the runner's sequences, the last ones, keep prefixes; the others are for as many answers at a time.
  explicit Scheduler(Runner& runner, int64_t cached = 0);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // A prompt without tokens, or one that leaves no room for an answer, ends at once with an empty one. Error for an id
  // that is no token.
  void submit(Request request);
  bool idle() const { return waiting_.empty() && streams_.empty(); }
  int64_t waiting() const { return std::ssize(waiting_); }
  int64_t running() const { return std::ssize(streams_); }
  // One pass over all requests that run. Error when it fails: `cancel` has to follow.
  void pass();
  // Ends every request, as after an error.
  void cancel();

 private:
  using Clock = std::chrono::steady_clock;
  struct Stream {
    Request request;
    std::vector<std::vector<TokenLogprob>> prompt_logprobs{};
    std::string error{};
    TokenPicker picker;
    int64_t sequence = 0;
    int64_t read = 0;  // of the prompt
    int64_t cached = 0;
    int32_t next = 0;  // sampled but not read yet
    Clock::time_point began{}, first_token{};

    bool reading() const { return read < std::ssize(request.prompt); }
    bool generates() const { return request.generate.tokens_max != 0; }
    bool over() const { return !error.empty() || (!reading() && !generates()); }  // without another token
    int64_t piece(int64_t chunk) const;
  };
  void admit();
  void drop_unwanted();
  void score(Stream& s, const Tensor& x, int64_t row, int64_t tokens);
  void draw(const Tensor& logits, std::span<const size_t> drawing);
  std::optional<Finish> advance(Stream& s, std::span<const float> logits);
  void end(Stream& s, Finish finish);

  Runner& runner_;
  PrefixCache cache_;
  std::deque<Request> waiting_;
  std::vector<Stream> streams_;
  std::vector<int64_t> free_;  // sequences
};

// The answers to all of them, in their order; on_token and on_end of the requests are not called. `progress` receives
// the number of finished answers; when it returns false generation stops, and the answers that are left are empty.
std::vector<Generated> generate_all(Runner& runner, std::vector<Request> requests,
                                    const sys::FunctionRef<bool(int64_t)>& progress);

}  // namespace braid::engine
