// Answers to many prompts with continuous batching: each pass reads one token of every answer that is being generated
// and pieces of unread prompts. When an answer ends, the next request takes its sequence, as soon as the
// memory for all that it can need is there: for its prompt and the most tokens of its answer, beside what was promised
// to the others; a request that runs is never short of memory. By the row contract an answer does not depend on the
// others in the batch; where it continues from a cached prefix, which was cut elsewhere, that is so within the bound of
// the scan's forms, and bit for bit under --exact. What chat, run, eval and the server share.
#pragma once
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/damage.h"
#include "engine/draft.h"
#include "engine/prefix_cache.h"
#include "engine/runner.h"
#include "engine/token_picker.h"
#include "sys/function_ref.h"

namespace braid::engine {

struct Request {
  std::vector<int32_t> prompt{};
  GenerateOptions generate{};
  // Positions in the prompt, ascending, whose states later prompts may continue from: where the next turn of a
  // conversation will differ from this one. The ends of the prompt and of the answer always are.
  std::vector<int64_t> marks{};
  // Alternatives whose log-probabilities are returned for every token of the prompt; -1: no log-probabilities of the
  // prompt. Such a prompt is read whole: the states of a cached prefix have no logits. With tokens_max 0 nothing is
  // generated, and the prompt may fill the context; it is read if `prompt_logprobs` or `on_piece` asks for it.
  int64_t prompt_logprobs = -1;
  // Among the answers of one client that wait: which round of turns it is for, counted from the one that runs. A round
  // is one turn of every client that waits when it begins.
  int64_t ordinal = 0;
  nn::Probe* probe = nullptr;  // sees the passes over the prompt, of a runner with one sequence
  // Called from `pass`, `submit` and `cancel`; each may be empty. `wanted` is asked before every pass and ends the
  // request when it is false; `on_piece` sees each piece of the prompt that was read, as rows [first, first + tokens)
  // of the residual stream x; `on_logprobs` sees the log-probabilities of each token, the end token's too, if they are
  // asked for; `on_token` sees each token but the end token, and false ends the answer; `on_end` is called once, and
  // may submit another request. What one of them throws ends its request, as `Generated::thrown`, and no other; what
  // `on_end` throws is discarded: the request has already ended.
  std::function<bool()> wanted{};
  std::function<void(int64_t cached_tokens)> on_start{};  // before its first pass
  std::function<void(int64_t tokens)> on_read{};  // after such a piece: how many of the prompt are read or cached
  std::function<void(const Tensor& x, int64_t first, int64_t tokens)> on_piece{};
  std::function<void(const std::vector<TokenLogprob>&)> on_logprobs{};
  std::function<bool(int32_t)> on_token{};
  std::function<void(Generated, int64_t cached_tokens)> on_end{};
};

// Of one moment.
struct MemoryUse {
  int64_t bytes = 0, bytes_max = 0;  // of the budget: sequences and cache
  int64_t pages = 0, pages_free = 0, slots = 0;
  int64_t pages_leaked = 0;  // references to pages that nobody answers for: a bug
  int64_t snapshots = 0, cached_tokens = 0;
  int64_t lookups = 0, hits = 0;                 // of requests; hits continued from something
  int64_t looked_up_tokens = 0, hit_tokens = 0;  // of the prompts of those, and how many were not read again
  int64_t failed_copies = 0;                     // of states for later prompts, which read again what they had
  int64_t index_bytes = 0;                       // of `bytes`: n-grams of running answers, for drafts
  // Of a draft model, beside the bytes above: its sequences and its weights.
  int64_t draft_bytes = 0, draft_bytes_max = 0, draft_weight_bytes = 0;
};

class Scheduler {
 public:
  // As many answers at a time as the runner has sequences. A runner with a budget (RunnerOptions::memory) keeps
  // prefixes for later prompts in what they leave of it. Steps that verify drafts take a spare slot of the runner
  // each.
  explicit Scheduler(Runner& runner, DraftOptions drafts = {});
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // A prompt without tokens, or one that leaves no room for an answer, ends at once with an empty one. Error for an id
  // that is not a token.
  void submit(Request request);
  bool idle() const { return waiting_.empty() && streams_.empty(); }
  int64_t waiting() const { return waiting_count_; }
  int64_t running() const { return std::ssize(streams_); }
  MemoryUse memory() const;
  // Where there is a budget; null: nothing is cached.
  PrefixCache* cache() { return cache_ ? &*cache_ : nullptr; }
  // One pass over all requests that run. Error when it fails: `cancel` has to follow. What fails for one of them
  // alone, as the copy of a cached state when it begins, ends that one, as `Generated::thrown`; a state that cannot be
  // stored for later prompts ends none.
  void pass();
  // Ends every request, as after an error.
  void cancel();

 private:
  using Clock = std::chrono::steady_clock;
  struct Stream {
    Request request;
    std::vector<std::vector<TokenLogprob>> prompt_logprobs{};
    std::exception_ptr thrown{};  // by a callback, or by what drew its tokens
    TokenPicker picker;
    int64_t sequence = 0;
    int64_t read = 0;  // of the prompt
    int64_t cached = 0;
    int64_t kept = 0;         // length at the last spare snapshot
    int32_t next = 0;         // sampled but not read yet
    int64_t promised = 0;     // bytes
    int64_t index_most = 0;   // of them, for n-grams
    int64_t index_bytes = 0;  // of those, in use
    bool looked_up = false;   // in the cache
    bool started = false;
    std::vector<float> row{};  // of the last token of a prompt that was found whole; until the first token is drawn
    AnswerDrafts drafts{};
    Clock::time_point began{}, first_token{};

    bool reading() const { return read < std::ssize(request.prompt); }
    bool generates() const { return request.generate.tokens_max != 0; }
    bool over() const { return thrown || (!reading() && !generates()); }  // without another token
    int64_t piece(int64_t chunk) const;
  };
  template <class Call>
  static void guard(Stream& s, const Call& call);
  void admit();
  void advance_round(int64_t ordinal);
  void look_up(Stream& s);
  void start(Stream& s);
  void store(Stream& s, std::span<const int32_t> tokens, std::span<const float> row, PrefixCache::Worth worth);
  void keep_read(Stream& s, std::span<const float> row);
  void keep_on_the_way();
  int64_t tokens_needed(const Request& request) const;
  void draw_found();
  std::vector<Stream> take_out(const sys::FunctionRef<bool(Stream&)>& test);
  void drop_unwanted();
  void drop_failed();
  void draft();
  void make_room_for_index(Stream& s);
  struct Budget {
    int64_t tokens = 0;
    int64_t others = 0;  // more, of prompts that end with them and share nothing with those before
  };
  struct Reading {  // a piece of a prompt in a pass
    size_t stream;
    int64_t tokens, first;
  };
  Budget prompt_budget() const;
  bool may_share(const Stream& s, const Stream& other) const;
  int64_t tokens_of(const Stream& s, const Budget& budget, std::span<const Reading> readings) const;
  int64_t tokens_of(const Stream& s, int64_t budget) const;
  std::vector<size_t> turns();
  void read_and_draw();
  void score(Stream& s, const Tensor& x, int64_t row, int64_t tokens);
  // Of a stream: its rows of the logits, one after its last token and each of its drafts, and of the residual stream.
  struct Drawing {
    size_t stream = 0, row = 0;
    int64_t first = 0;
  };
  void draw(const Tensor& x, const Tensor& logits, std::span<const Drawing> drawing);
  std::optional<Finish> verify(Stream& s, const Tensor& x, const Tensor& logits, const Drawing& drawing);
  std::optional<Finish> advance(Stream& s, std::span<const float> logits, int64_t length);
  void end(Stream& s, Finish finish);

  Runner& runner_;
  DamageCheck damage_;
  std::optional<PrefixCache> cache_;  // where there is a budget
  std::optional<Drafter> drafter_;
  int64_t grid_ = 1;                 // prompts are cut at its multiples: a chunk of the scan, or a page without one
  int64_t chunk_ = 1;                // tokens of a full piece of a prompt, a multiple of the grid
  double prompt_token_seconds_ = 0;  // of recent passes
  int64_t promised_ = 0;             // bytes, to streams
  int64_t round_ = 0;                // ordinals of requests count from here
  int64_t round_left_ = 0;           // turns until the next one
  bool in_pass_ = false;             // after `pass`: it failed
  bool shortest_first_ = false;      // of the prompts of this pass
  int64_t lookups_ = 0, hits_ = 0;   // of requests that have begun
  int64_t looked_up_tokens_ = 0, hit_tokens_ = 0;
  int64_t failed_copies_ = 0;
  std::map<int64_t, std::deque<Request>> waiting_;  // by ordinal, none empty
  int64_t waiting_count_ = 0;
  std::vector<Stream> streams_;
  std::vector<int64_t> free_;  // sequences
};

// The answer to one more request, to its end; its on_end is not called. Throws what ended it, or what a pass did.
Generated generate(Scheduler& scheduler, Request request);

// The answers to all of them, in their order; on_token and on_end of the requests are not called. `progress` receives
// the number of finished answers; when it returns false generation stops, and the answers that are left are empty.
std::vector<Generated> generate_all(Runner& runner, std::vector<Request> requests,
                                    const sys::FunctionRef<bool(int64_t)>& progress, DraftOptions drafts = {});

}  // namespace braid::engine
