#include "engine/scheduler.h"

#include <algorithm>
#include <string>
#include <utility>

#include "sys/check.h"
#include "sys/error.h"

namespace braid::engine {
namespace {

double seconds_between(std::chrono::steady_clock::time_point a, std::chrono::steady_clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

}  // namespace

Scheduler::Scheduler(Runner& runner, int64_t cached)
    : runner_(runner), cache_(runner, runner.options().sequences - cached, cached) {
  CHECK(cached >= 0 && cached < runner.options().sequences, "{} cached of {} sequences", cached,
        runner.options().sequences);
  for (int64_t sequence = runner.options().sequences - cached; sequence-- > 0;) {
    runner_.reset(sequence);
    free_.push_back(sequence);
  }
}

void Scheduler::submit(Request request) {
  const auto unknown =
      std::ranges::find_if(request.prompt, [&](int32_t id) { return id < 0 || id >= runner_.config().vocab; });
  if (unknown != request.prompt.end())
    fail("token ids", {.what = "no such token",
                       .got = std::to_string(*unknown),
                       .expected = fmt::format("0 to {}", runner_.config().vocab - 1)});
  const bool generates = request.generate.tokens_max != 0;
  const bool answerable = !request.prompt.empty() &&
                          std::ssize(request.prompt) + (generates ? 1 : 0) <= runner_.options().context &&
                          (generates || request.prompt_logprobs >= 0);
  if (answerable) return waiting_.push_back(std::move(request));
  if (request.on_end) request.on_end({}, 0);
}

void Scheduler::admit() {
  while (!waiting_.empty() && !free_.empty()) {
    Request& request = waiting_.front();
    const int64_t sequence = free_.back();
    const bool scored = request.prompt_logprobs >= 0;
    const int64_t cached = scored ? 0 : cache_.resume(request.prompt, sequence);
    if (scored) runner_.reset(sequence);
    TokenPicker picker(request.generate, request.prompt, runner_.config().eos);
    streams_.push_back({.request = std::move(request),
                        .picker = std::move(picker),
                        .sequence = sequence,
                        .read = cached,
                        .cached = cached,
                        .began = Clock::now()});
    waiting_.pop_front();
    free_.pop_back();
    if (streams_.back().request.on_start) streams_.back().request.on_start(cached);
  }
}

void Scheduler::drop_unwanted() {
  const auto unwanted = [](const Request& r) { return r.wanted && !r.wanted(); };
  std::vector<Stream> ended;
  for (size_t i = 0; i < streams_.size();) {
    if (!unwanted(streams_[i].request)) {
      ++i;
      continue;
    }
    ended.push_back(std::move(streams_[i]));
    streams_.erase(streams_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  for (size_t n = waiting_.size(); n > 0; --n) {  // in their order
    Request request = std::move(waiting_.front());
    waiting_.pop_front();
    if (!unwanted(request))
      waiting_.push_back(std::move(request));
    else if (request.on_end)
      request.on_end({.finish = Finish::cancelled}, 0);
  }
  for (Stream& s : ended) end(s, Finish::cancelled);
}

// Tokens of the next piece of a prompt: those that Runner::prefill would take, or fewer up to a mark.
int64_t Scheduler::Stream::piece(int64_t chunk) const {
  int64_t end = std::min(read + chunk, std::ssize(request.prompt));
  for (const int64_t mark : request.marks) {
    if (mark > read) return std::min(end, mark) - read;
  }
  return end - read;
}

// A prompt's pieces do not depend on the batch, so that its bits do not either, and at most one full piece in total is
// read in a pass, so that answers do not wait for more.
void Scheduler::pass() {
  drop_unwanted();
  admit();
  std::vector<Piece> pieces;
  std::vector<int32_t> ids;
  std::vector<int64_t> last;    // rows to sample from
  std::vector<size_t> drawing;  // their streams
  struct Reading {
    size_t stream;
    int64_t row, tokens;
  };
  std::vector<Reading> readings;  // pieces of prompts
  int64_t budget = runner_.options().chunk;
  for (size_t i = 0; i < streams_.size(); ++i) {
    Stream& s = streams_[i];
    const bool step = !s.reading();
    const int64_t tokens = step ? 1 : s.piece(runner_.options().chunk);
    if (!step && tokens > budget) continue;
    const int32_t* from = step ? &s.next : s.request.prompt.data() + s.read;
    ids.insert(ids.end(), from, from + tokens);
    pieces.push_back({.sequence = s.sequence, .tokens = tokens, .phase = step ? Phase::step : Phase::prefill});
    if (!step) {
      budget -= tokens;
      readings.push_back({i, std::ssize(ids) - tokens, tokens});
      if (s.read + tokens < std::ssize(s.request.prompt) || !s.generates()) continue;
    }
    last.push_back(std::ssize(ids) - 1);
    drawing.push_back(i);
  }
  if (pieces.empty()) return;
  const Tensor x = runner_.forward(ids, pieces);
  for (const Reading& reading : readings) {
    Stream& s = streams_[reading.stream];
    if (s.request.prompt_logprobs >= 0) score(s, x, reading.row, reading.tokens);
    s.read += reading.tokens;
    if (std::ranges::find(s.request.marks, s.read) != s.request.marks.end())
      cache_.keep(std::span(s.request.prompt).first(static_cast<size_t>(s.read)), s.sequence);
  }
  if (!last.empty())
    draw(runner_.logits(runner_.rows(x, last), pieces[0].phase), drawing);
  else if (std::ranges::any_of(streams_, &Stream::over))
    draw({}, {});
}

// Log-probabilities of the tokens that follow `tokens` rows of x from `row` on, which begin at s.read. By the tile, so
// that logits never exist for a whole piece.
void Scheduler::score(Stream& s, const Tensor& x, int64_t row, int64_t tokens) {
  constexpr int64_t kTile = 32;
  const int64_t end = std::min(tokens, std::ssize(s.request.prompt) - 1 - s.read);
  std::vector<int64_t> wanted;
  for (int64_t begin = 0; begin < end && s.error.empty(); begin += kTile) {
    wanted.clear();
    for (int64_t t = begin; t < std::min(begin + kTile, end); ++t) wanted.push_back(row + t);
    const Tensor logits = runner_.logits(runner_.rows(x, wanted));
    const auto width = static_cast<size_t>(logits.dim(1));
    try {
      for (size_t i = 0; i < wanted.size(); ++i) {
        const int32_t next = s.request.prompt[static_cast<size_t>(s.read + begin) + i + 1];
        s.prompt_logprobs.push_back(
            logprobs_of({logits.view().as<float>() + i * width, width}, next, s.request.prompt_logprobs));
      }
    } catch (const Error& e) {
      s.error = e.what();
    }
  }
}

// A stream leaves the list before its request learns that it has ended: whatever follows, it ends once.
void Scheduler::draw(const Tensor& logits, std::span<const size_t> drawing) {
  const auto width = drawing.empty() ? size_t{0} : static_cast<size_t>(logits.dim(1));
  std::vector<std::optional<Finish>> over(streams_.size());
  for (size_t row = 0; row < drawing.size(); ++row) {
    Stream& s = streams_[drawing[row]];
    try {
      over[drawing[row]] = advance(s, {logits.view().as<float>() + row * width, width});
    } catch (const Error& e) {  // its logits are not finite: the others' may be
      if (e.fault() != Fault::failed_run) throw;
      s.error = e.what();
    }
  }
  for (size_t i = 0; i < streams_.size(); ++i) {
    if (!over[i] && streams_[i].over()) over[i] = streams_[i].error.empty() ? Finish::length : Finish::cancelled;
  }
  std::vector<Stream> running, ended;
  std::vector<Finish> how;
  for (size_t i = 0; i < over.size(); ++i) {
    (over[i] ? ended : running).push_back(std::move(streams_[i]));
    if (over[i]) how.push_back(*over[i]);
  }
  streams_ = std::move(running);
  for (size_t i = 0; i < ended.size(); ++i) end(ended[i], how[i]);
}

// Takes the next token; returns how the answer ends with it, if it does.
std::optional<Finish> Scheduler::advance(Stream& s, std::span<const float> logits) {
  if (s.first_token == Clock::time_point{}) s.first_token = Clock::now();
  s.next = s.picker.next(logits);
  if (s.request.on_logprobs && !s.picker.logprobs().empty()) s.request.on_logprobs(s.picker.logprobs().back());
  if (s.picker.ended()) return Finish::stop;
  if (s.request.on_token && !s.request.on_token(s.next)) return Finish::cancelled;
  const bool full = !s.picker.may_continue() || runner_.length(s.sequence) == runner_.options().context;
  return full ? std::optional(Finish::length) : std::nullopt;
}

void Scheduler::end(Stream& s, Finish finish) {
  Generated out{.prompt_logprobs = std::move(s.prompt_logprobs), .finish = finish, .error = s.error};
  s.picker.take(out);
  const Clock::time_point now = Clock::now(), first = s.first_token == Clock::time_point{} ? now : s.first_token;
  out.timings = {.prompt_tokens = s.read - s.cached,
                 .generated_tokens = std::ssize(out.ids),
                 .prompt_seconds = seconds_between(s.began, first),
                 .generate_seconds = seconds_between(first, now)};
  if (!s.error.empty()) runner_.reset(s.sequence);  // nothing continues from it
  // The last token was sampled but not read.
  std::vector<int32_t> read = s.request.prompt;
  read.insert(read.end(), out.ids.begin(), out.ids.end());
  const auto length = static_cast<size_t>(runner_.length(s.sequence));
  const bool whole = !s.reading() && length <= read.size();  // one that was left in the middle would only take room
  if (whole) cache_.keep(std::span(read).first(length), s.sequence);
  runner_.reset(s.sequence);
  free_.push_back(s.sequence);
  if (s.request.on_end) s.request.on_end(std::move(out), s.cached);
}

void Scheduler::cancel() {
  std::vector<Stream> streams = std::exchange(streams_, {});
  std::deque<Request> waiting = std::exchange(waiting_, {});
  for (Stream& s : streams) {
    runner_.reset(s.sequence);  // after a failed pass its length says nothing
    end(s, Finish::cancelled);
  }
  for (Request& r : waiting) {
    if (r.on_end) r.on_end({.finish = Finish::cancelled}, 0);
  }
}

std::vector<Generated> generate_all(Runner& runner, std::vector<Request> requests,
                                    const sys::FunctionRef<bool(int64_t)>& progress) {
  std::vector<Generated> answers(requests.size());
  Scheduler scheduler(runner);
  int64_t done = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].on_token = {};
    requests[i].on_end = [&, i](Generated out, int64_t) {
      answers[i] = std::move(out);
      ++done;
    };
    scheduler.submit(std::move(requests[i]));
  }
  do scheduler.pass();
  while (progress(done) && !scheduler.idle());
  for (const Generated& answer : answers) {
    if (!answer.error.empty()) throw Error(Fault::failed_run, answer.error);
  }
  return answers;
}

}  // namespace braid::engine
