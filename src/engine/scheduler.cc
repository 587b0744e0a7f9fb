#include "engine/scheduler.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>

#include "sys/check.h"
#include "sys/error.h"

namespace braid::engine {
namespace {

double seconds_between(std::chrono::steady_clock::time_point a, std::chrono::steady_clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

std::string message_of(const std::exception_ptr& thrown) {
  if (!thrown) return "";
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "unknown error";
  }
}

void tell_end(const Request& request, Generated out, int64_t cached) {
  try {
    if (request.on_end) request.on_end(std::move(out), cached);
  } catch (...) {  // the other requests go on
  }
}

// What ends before it has run.
Generated nothing_of(const std::exception_ptr& thrown) {
  return {.finish = Finish::cancelled, .error = message_of(thrown), .thrown = thrown};
}

// Whether a request is not wanted any more; `thrown`: what it said instead.
bool unwanted(const Request& request, std::exception_ptr& thrown) {
  try {
    return request.wanted && !request.wanted();
  } catch (...) {
    thrown = std::current_exception();
    return true;
  }
}

}  // namespace

// Calls what may throw for one stream alone: it is over then.
template <class Call>
void Scheduler::guard(Stream& s, const Call& call) {
  if (s.thrown) return;
  try {
    call();
  } catch (...) {
    s.thrown = std::current_exception();
  }
}

Scheduler::Scheduler(Runner& runner, DraftOptions drafts) : runner_(runner) {
  if (runner.options().memory > 0) cache_.emplace(runner);
  if (drafts.any()) drafter_.emplace(runner, std::move(drafts));
  chunk_ = grid_ = runner.options().chunk;
  bool scans = false;
  for (const nn::StateShape& shape : runner.model().state_shapes()) {
    if (shape.chunk > 0) grid_ = std::min(grid_, shape.chunk);
    scans = scans || shape.chunk > 0;
  }
  if (Ranks* ranks = runner.options().ranks) {
    grid_ = ranks->least(grid_);
    scans = ranks->least(scans ? 0 : 1) == 0;
  }
  if (!scans) grid_ = std::min(grid_, kPageTokens);
  chunk_ -= chunk_ % grid_;
  for (int64_t sequence = runner.options().sequences; sequence-- > 0;) {
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
  CHECK(!request.probe || runner_.options().sequences == 1, "a probe of one of {} sequences",
        runner_.options().sequences);
  const bool generates = request.generate.tokens_max != 0;
  const bool answerable = !request.prompt.empty() &&
                          std::ssize(request.prompt) + (generates ? 1 : 0) <= runner_.options().context &&
                          (generates || request.prompt_logprobs >= 0 || request.on_piece);
  if (answerable) {
    // Between the answers of one client's request come those of others.
    request.ordinal += round_;
    waiting_[request.ordinal].push_back(std::move(request));
    ++waiting_count_;
    return;
  }
  tell_end(request, {}, 0);
}

// The most that a request can need. A guess may read a few tokens that are then undone.
int64_t Scheduler::tokens_needed(const Request& request) const {
  constexpr int64_t kGuess = 8;
  const int64_t context = runner_.options().context, prompt = std::ssize(request.prompt),
                answer = request.generate.tokens_max < 0 ? context : request.generate.tokens_max;
  return prompt + std::min(answer + kGuess, context - prompt);
}

// Before a request of this ordinal is taken from those that wait. A round is a turn of every client that waited when it
// began, so that one that comes later waits for about a turn of all others, and what has an ordinal for as many rounds.
void Scheduler::advance_round(int64_t ordinal) {
  const auto begin = [this](int64_t round) {
    round_ = round;
    round_left_ = 0;
    for (auto at = waiting_.begin(); at != waiting_.end() && at->first <= round_; ++at)
      round_left_ += std::ssize(at->second);
  };
  if (ordinal > round_) begin(ordinal);
  if (round_left_ <= 0) begin(round_ + 1);
  --round_left_;
}

// In their order: a large request is not overtaken for ever.
void Scheduler::admit() {
  while (!waiting_.empty() && !free_.empty()) {
    const auto turn = waiting_.begin();
    Request& request = turn->second.front();
    const int64_t tokens = tokens_needed(request), bytes = runner_.sequence_bytes_of(tokens);
    int64_t index = drafter_ && cache_ ? drafter_->index_bytes_of(tokens) : 0;
    if (bytes + index > runner_.memory_for_sequences()) index = 0;  // it could never begin: no drafts from n-grams
    const int64_t promised = bytes + index;
    if (cache_ && promised_ + promised > runner_.memory_for_sequences()) break;
    TokenPicker picker(request.generate, request.prompt, runner_.config().eos);
    streams_.push_back({.request = std::move(request),
                        .picker = std::move(picker),
                        .sequence = free_.back(),
                        .promised = promised,
                        .index_most = index,
                        .drafts = drafter_ ? drafter_->begin(0, tokens) : AnswerDrafts{},
                        .began = Clock::now()});
    promised_ += promised;
    free_.pop_back();
    advance_round(turn->first);
    turn->second.pop_front();
    if (turn->second.empty()) waiting_.erase(turn);
    --waiting_count_;
  }
  // Those that have not begun yet: of prompts that come together and begin alike, the later ones find what the first
  // has read.
  for (Stream& s : streams_) {
    // The states of a cached prefix have no logits, and nothing for `on_piece` to see.
    const bool whole = s.request.prompt_logprobs >= 0 || !s.generates();
    if (cache_ && !whole && s.reading() && s.read == s.cached &&
        (!s.looked_up || cache_->longest(s.request.prompt) > s.cached))
      guard(s, [&] { look_up(s); });
  }
}

// From here on it is settled what of its prompt need not be read.
void Scheduler::start(Stream& s) {
  if (std::exchange(s.started, true) || !s.request.on_start) return;
  guard(s, [&] { s.request.on_start(s.cached); });
}

void Scheduler::look_up(Stream& s) {
  hits_ -= s.cached > 0;
  hit_tokens_ -= s.cached;
  lookups_ += !s.looked_up;
  looked_up_tokens_ += s.looked_up ? 0 : std::ssize(s.request.prompt);
  s.looked_up = true;
  PrefixCache::Found found = cache_->resume(s.request.prompt, s.sequence);
  s.read = s.cached = s.kept = found.tokens;
  s.row = std::move(found.row);
  if (s.drafts.mtp) s.drafts.mtp = MtpState{.read = found.tokens};
  hits_ += s.cached > 0;
  hit_tokens_ += s.cached;
  // Where this prompt leaves one that was read before, others may leave it too. At a multiple of the scan's chunk,
  // where a cut changes no bits of a prompt that is read from its beginning.
  const auto mark = [&](int64_t position) {
    std::vector<int64_t>& marks = s.request.marks;
    const auto at = std::ranges::lower_bound(marks, position);
    if (position > s.read && (at == marks.end() || *at != position)) marks.insert(at, position);
  };
  mark(found.common / grid_ * grid_);
  mark(std::ssize(s.request.prompt));
}

// The states of long answers a chunk apart: the next prompt may contain an answer as far as a template or a client
// rewrites it.
void Scheduler::keep_on_the_way() {
  if (!cache_) return;
  for (Stream& s : streams_) {
    const int64_t length = runner_.length(s.sequence);
    if (s.reading() || length / chunk_ == s.kept / chunk_) continue;
    store(s, s.picker.text().first(static_cast<size_t>(length)), {}, PrefixCache::Worth::spare);
  }
}

// For later prompts alone: where it fails, they read again what the sequence has read, and this answer goes on.
void Scheduler::store(Stream& s, std::span<const int32_t> tokens, std::span<const float> row,
                      PrefixCache::Worth worth) {
  s.kept = std::ssize(tokens);
  try {
    // What continues from the state needs the keys and values of the prediction block, too.
    if (drafter_) drafter_->settle(s.drafts, s.sequence, s.picker.text());
    cache_->keep(tokens, s.sequence, row, worth);
  } catch (const std::exception&) {
    ++failed_copies_;
  }
}

// After a piece of a prompt, with the row of its last token.
void Scheduler::keep_read(Stream& s, std::span<const float> row) {
  const bool marked = std::ranges::binary_search(s.request.marks, s.read);
  store(s, std::span(s.request.prompt).first(static_cast<size_t>(s.read)), row,
        marked ? PrefixCache::Worth::wanted : PrefixCache::Worth::spare);
}

MemoryUse Scheduler::memory() const {
  const StatePool& pool = runner_.pool();
  MemoryUse use{.bytes = pool.bytes_in_use(),
                .bytes_max = runner_.options().memory,
                .pages = pool.pages_in_use(),
                .pages_free = pool.pages_free(),
                .slots = pool.slots_in_use(),
                .pages_leaked = pool.references()};
  for (int64_t i = 0; i < runner_.options().sequences; ++i) use.pages_leaked -= std::ssize(pool.pages(i));
  for (const Stream& s : streams_) use.index_bytes += s.index_bytes;
  if (Runner* draft = drafter_ ? drafter_->model() : nullptr) {
    use.draft_bytes = draft->pool().bytes_in_use();
    use.draft_bytes_max = draft->options().memory;
    use.draft_weight_bytes = drafter_->model_bytes();
  }
  if (!cache_) return use;
  use.pages_leaked -= cache_->page_references();
  use.snapshots = cache_->snapshots();
  use.cached_tokens = cache_->tokens();
  use.lookups = lookups_;
  use.hits = hits_;
  use.looked_up_tokens = looked_up_tokens_;
  use.hit_tokens = hit_tokens_;
  use.failed_copies = failed_copies_;
  return use;
}

std::vector<Scheduler::Stream> Scheduler::take_out(const sys::FunctionRef<bool(Stream&)>& test) {
  std::vector<Stream> out;
  for (size_t i = 0; i < streams_.size();) {
    if (!test(streams_[i])) {
      ++i;
      continue;
    }
    out.push_back(std::move(streams_[i]));
    streams_.erase(streams_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return out;
}

// What failed for one of them before the pass, in the engine or in a callback, ends that one.
void Scheduler::drop_failed() {
  for (Stream& s : take_out([](Stream& s) { return s.thrown != nullptr; })) end(s, Finish::cancelled);
}

void Scheduler::drop_unwanted() {
  std::vector<Stream> ended = take_out([](Stream& s) { return unwanted(s.request, s.thrown); });
  std::vector<std::pair<Request, std::exception_ptr>> left;
  for (auto turn = waiting_.begin(); turn != waiting_.end();) {
    std::deque<Request>& requests = turn->second;
    const auto gone = [&left](Request& request) {
      std::exception_ptr thrown;
      if (!unwanted(request, thrown)) return false;
      left.emplace_back(std::move(request), thrown);
      return true;
    };
    waiting_count_ -= static_cast<int64_t>(std::erase_if(requests, gone));
    turn = requests.empty() ? waiting_.erase(turn) : std::next(turn);
  }
  for (const auto& [request, thrown] : left) tell_end(request, nothing_of(thrown), 0);  // which may submit others
  for (Stream& s : ended) end(s, Finish::cancelled);
}

// Tokens of the next piece of a prompt: a full one, or fewer up to a mark.
int64_t Scheduler::Stream::piece(int64_t chunk) const {
  int64_t end = std::min(read + chunk, std::ssize(request.prompt));
  for (const int64_t mark : request.marks) {
    if (mark > read) return std::min(end, mark) - read;
  }
  return end - read;
}

// Memory for the n-grams of the text is taken before they are stored, some hundred tokens at a time.
void Scheduler::make_room_for_index(Stream& s) {
  constexpr int64_t kTokens = 256;
  const int64_t tokens = (std::ssize(s.picker.text()) + kTokens - 1) / kTokens * kTokens;
  const int64_t bytes = std::min(drafter_->index_bytes_of(tokens), s.index_most);
  if (bytes > s.index_bytes && runner_.pool().charge(bytes - s.index_bytes)) s.index_bytes = bytes;
  s.drafts.index_tokens = s.index_bytes / NgramIndex::kTokenBytes;
}

// Drafts for every stream that steps, as far as it may go on after its next token.
void Scheduler::draft() {
  std::vector<Drafter::Wanted> wanted;
  int64_t steps = 0;
  for (Stream& s : streams_) {
    if (cache_ && !s.reading()) make_room_for_index(s);
    const int64_t length = runner_.length(s.sequence), room = runner_.options().context - length - 1;
    int64_t most = std::max<int64_t>(0, std::min(room, s.picker.tokens_left(room + 1) - 1));
    if (cache_)
      most = std::min(most, chunk_ - length % chunk_ - 1);  // states are kept at the same lengths as without drafts
    wanted.push_back(
        {.answer = &s.drafts, .sequence = s.sequence, .picker = &s.picker, .tokens_max = s.reading() ? 0 : most});
    steps += s.reading() ? 0 : 1;
  }
  // Of the free slots only the spare ones are unreserved.
  drafter_->draft(wanted, steps, std::min(runner_.spare_slots(), runner_.options().spare_slots));
}

void Scheduler::pass() {
  in_pass_ = true;
  drop_unwanted();
  keep_on_the_way();
  admit();
  drop_failed();
  draw_found();
  if (drafter_) draft();
  read_and_draw();
  in_pass_ = false;
}

// Prompt tokens of the next pass: a full piece, or as many as take the time that answers may be kept waiting. While
// nobody waits, as many more may be added where that is quick: experts that see more tokens are read less often.
Scheduler::Budget Scheduler::prompt_budget() const {
  constexpr double kSeconds = 2;  // of a pass with a second piece
  const double limit = runner_.options().pass_seconds;
  const auto tokens_in = [&](double seconds) { return static_cast<int64_t>(seconds / prompt_token_seconds_); };
  const bool steps = std::ranges::any_of(streams_, [](const Stream& s) { return !s.reading(); });
  if (prompt_token_seconds_ <= 0) return {.tokens = chunk_};
  if (!steps) return {.tokens = chunk_, .others = std::clamp(tokens_in(kSeconds) - chunk_, int64_t{0}, chunk_)};
  if (limit <= 0) return {.tokens = chunk_};
  return {.tokens = std::clamp(tokens_in(limit), grid_, chunk_)};
}

// Whether a prompt that has not begun will find something in the cache once `other` has read its piece.
bool Scheduler::may_share(const Stream& s, const Stream& other) const {
  const std::vector<int32_t>&a = s.request.prompt, &b = other.request.prompt;
  return cache_ && s.read == s.cached && std::ranges::mismatch(a, b).in1 - a.begin() >= s.read + grid_;
}

// Tokens of the next piece of s, when `readings` are in the pass. Others' are for prompts that end with them: a long
// one would only delay those before it.
int64_t Scheduler::tokens_of(const Stream& s, const Budget& budget, std::span<const Reading> readings) const {
  const auto shares = [&](const Reading& r) { return may_share(s, streams_[r.stream]); };
  const int64_t rest = std::ssize(s.request.prompt) - s.read, piece = s.piece(chunk_);
  const bool fits = piece == rest && rest <= budget.tokens + budget.others;
  return fits && std::ranges::none_of(readings, shares) ? rest : tokens_of(s, budget.tokens);
}

// A prompt is cut where that changes no bits, whatever the batch: into full pieces, or chunks of the scan from the
// start of one.
int64_t Scheduler::tokens_of(const Stream& s, int64_t budget) const {
  const int64_t tokens = s.piece(chunk_);
  return tokens <= budget ? tokens : budget / grid_ * grid_;
}

// The order in which streams take their part of a pass. While answers step, a pass has time for little of the prompts:
// every other one begins with the shortest rest, so that a short prompt does not wait for all of a long one, which is
// read at half the rate at least.
std::vector<size_t> Scheduler::turns() {
  std::vector<size_t> order(streams_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto reading = static_cast<size_t>(std::ranges::count_if(streams_, &Stream::reading));
  shortest_first_ = reading > 1 && reading < streams_.size() && !shortest_first_;
  if (!shortest_first_) return order;
  std::vector<std::pair<bool, int64_t>> keys;
  for (size_t i = 0; i < streams_.size(); ++i) {
    const Stream& s = streams_[i];
    // Not before one whose piece it will find in the cache.
    const auto shares = [&](const Stream& earlier) { return earlier.reading() && may_share(s, earlier); };
    const bool waits = s.reading() && std::ranges::any_of(std::span(streams_).first(i), shares);
    keys.emplace_back(waits, std::ssize(s.request.prompt) - s.read);
  }
  std::ranges::stable_sort(order, {}, [&](size_t i) { return keys[i]; });
  return order;
}

void Scheduler::read_and_draw() {
  const Clock::time_point began = Clock::now();
  std::vector<Piece> pieces;
  std::vector<int32_t> ids;
  std::vector<int64_t> last;  // rows to sample from
  std::vector<Drawing> drawing;
  std::vector<Reading> readings;
  nn::Probe* probe = nullptr;
  Budget budget = prompt_budget();
  for (const size_t i : turns()) {
    Stream& s = streams_[i];
    if (!s.reading()) {
      const std::vector<int32_t>& drafts = s.drafts.tokens;
      pieces.push_back({.sequence = s.sequence,
                        .tokens = 1 + std::ssize(drafts),
                        .phase = Phase::step,
                        .tentative = !drafts.empty()});
      drawing.push_back({i, last.size(), std::ssize(ids)});
      for (size_t row = 0; row <= drafts.size(); ++row) {
        last.push_back(std::ssize(ids));
        ids.push_back(row == 0 ? s.next : drafts[row - 1]);
      }
      continue;
    }
    const int64_t tokens = tokens_of(s, budget, readings);
    if (tokens == 0) continue;
    start(s);
    const int32_t* from = s.request.prompt.data() + s.read;
    readings.push_back({i, tokens, std::ssize(ids)});
    ids.insert(ids.end(), from, from + tokens);
    pieces.push_back({.sequence = s.sequence, .tokens = tokens});
    budget.others -= std::max<int64_t>(0, tokens - budget.tokens);
    budget.tokens = std::max<int64_t>(0, budget.tokens - tokens);
    probe = s.request.probe;
    if (s.read + tokens < std::ssize(s.request.prompt) || !s.generates()) continue;
    drawing.push_back({i, last.size(), -1});
    last.push_back(std::ssize(ids) - 1);
  }
  if (pieces.empty()) return;
  const Tensor x = runner_.forward(ids, pieces, probe);
  if (probe) probe->replay_row += std::ssize(ids);
  int64_t read = 0;
  for (const Reading& reading : readings) read += reading.tokens;
  if (read >= grid_) {
    const double each = runner_.agreed(seconds_between(began, Clock::now())) / static_cast<double>(read);
    prompt_token_seconds_ = prompt_token_seconds_ > 0 ? 0.7 * prompt_token_seconds_ + 0.3 * each : each;
  }
  for (const Reading& reading : readings) {
    Stream& s = streams_[reading.stream];
    if (s.request.prompt_logprobs >= 0) guard(s, [&] { score(s, x, reading.first, reading.tokens); });
    s.read += reading.tokens;
    if (s.request.on_read) guard(s, [&] { s.request.on_read(s.read); });
    if (drafter_) drafter_->read(s.drafts, x, reading.first, reading.tokens);
    if (s.request.on_piece) guard(s, [&] { s.request.on_piece(x, reading.first, reading.tokens); });
    if (!cache_) continue;
    const int64_t row = reading.first + reading.tokens - 1;
    keep_read(s, {x.view().as<float>() + row * x.dim(1), static_cast<size_t>(x.dim(1))});
  }
  if (!last.empty())
    draw(x, runner_.logits(runner_.rows(x, last), pieces[0].phase), drawing);
  else if (std::ranges::any_of(streams_, &Stream::over))
    draw({}, {}, {});
  if (drafter_ && readings.empty())
    drafter_->note(std::ssize(pieces), std::ssize(ids) - std::ssize(pieces),
                   runner_.agreed(seconds_between(began, Clock::now())));
}

// The first tokens of prompts that were found whole, with nothing to read before them.
void Scheduler::draw_found() {
  const auto found = [](const Stream& s) { return !s.row.empty(); };
  for (auto s = streams_.begin(); (s = std::ranges::find_if(streams_, found)) != streams_.end();) {
    start(*s);
    const Tensor x = runner_.row_of(std::exchange(s->row, {}));
    const Drawing first{.stream = static_cast<size_t>(s - streams_.begin()), .row = 0, .first = -1};
    draw(x, runner_.logits(x), {&first, 1});
  }
}

// Log-probabilities of the tokens that follow `tokens` rows of x from `row` on, which begin at s.read. By the tile, so
// that logits never exist for a whole piece.
void Scheduler::score(Stream& s, const Tensor& x, int64_t row, int64_t tokens) {
  constexpr int64_t kTile = 32;
  const int64_t end = std::min(tokens, std::ssize(s.request.prompt) - 1 - s.read);
  std::vector<int64_t> wanted;
  for (int64_t begin = 0; begin < end; begin += kTile) {
    wanted.clear();
    for (int64_t t = begin; t < std::min(begin + kTile, end); ++t) wanted.push_back(row + t);
    const Tensor logits = runner_.logits(runner_.rows(x, wanted));
    const auto width = static_cast<size_t>(logits.dim(1));
    for (size_t i = 0; i < wanted.size(); ++i) {
      const int32_t next = s.request.prompt[static_cast<size_t>(s.read + begin) + i + 1];
      s.prompt_logprobs.push_back(
          logprobs_of({logits.view().as<float>() + i * width, width}, next, s.request.prompt_logprobs));
    }
  }
}

// A stream leaves the list before its request learns that it has ended: whatever follows, it ends once.
void Scheduler::draw(const Tensor& x, const Tensor& logits, std::span<const Drawing> drawing) {
  std::vector<std::optional<Finish>> over(streams_.size());
  for (const Drawing& d : drawing) {
    Stream& s = streams_[d.stream];
    guard(s, [&] {  // logits that are not finite are its own, too
      try {
        over[d.stream] = verify(s, x, logits, d);
      } catch (const Error& error) {
        if (error.fault() == Fault::failed_run) damage_.fail_if_damaged(runner_);
        throw;
      }
    });
  }
  for (size_t i = 0; i < streams_.size(); ++i) {
    if (!over[i] && streams_[i].over()) over[i] = streams_[i].thrown ? Finish::cancelled : Finish::length;
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

// Draws after the last token, and after each draft that was drawn itself; the other drafts are undone.
std::optional<Finish> Scheduler::verify(Stream& s, const Tensor& x, const Tensor& logits, const Drawing& drawing) {
  const auto width = static_cast<size_t>(logits.dim(1));
  const size_t drafts = s.drafts.tokens.size(), drawn_before = s.picker.answer().size();
  const int64_t length = runner_.length(s.sequence) + (drafts > 0 ? 1 : 0);  // a tentative step does not count yet
  size_t accepted = 0;
  std::optional<Finish> over;
  while (true) {
    over = advance(s, {logits.view().as<float>() + (drawing.row + accepted) * width, width},
                   length + static_cast<int64_t>(accepted));
    if (over || accepted == drafts || s.next != s.drafts.tokens[accepted]) break;
    ++accepted;
  }
  if (drafts > 0) runner_.keep(s.sequence, 1 + static_cast<int64_t>(accepted));
  if (!drafter_) return over;
  if (drawing.first >= 0) drafter_->read(s.drafts, x, drawing.first, 1 + static_cast<int64_t>(accepted));
  drafter_->drawn(s.drafts, s.picker.answer().subspan(drawn_before));
  return over;
}

// Takes the next token, with `length` read before it; returns how the answer ends with it, if it does.
std::optional<Finish> Scheduler::advance(Stream& s, std::span<const float> logits, int64_t length) {
  if (s.first_token == Clock::time_point{}) s.first_token = Clock::now();
  s.next = s.picker.next(logits);
  const GenerateOptions& generate = s.request.generate;
  const bool drawn = generate.drawn_logprobs && generate.sampling.temperature > 0 && generate.sampling.temperature != 1;
  if (runner_.options().numerics.exact && generate.logprobs >= 0 && !drawn)
    s.picker.set_logprob(runner_.logprob(logits, s.next));
  if (s.request.on_logprobs && !s.picker.logprobs().empty()) s.request.on_logprobs(s.picker.logprobs().back());
  if (s.picker.ended()) return Finish::stop;
  if (s.request.on_token && !s.request.on_token(s.next)) return Finish::cancelled;
  if (s.picker.complete()) return Finish::stop;
  const bool full = !s.picker.may_continue() || length == runner_.options().context;
  return full ? std::optional(Finish::length) : std::nullopt;
}

void Scheduler::end(Stream& s, Finish finish) {
  Generated out{.prompt_logprobs = std::move(s.prompt_logprobs),
                .finish = finish,
                .error = message_of(s.thrown),
                .thrown = s.thrown};
  s.picker.take(out);
  const Clock::time_point now = Clock::now(), first = s.first_token == Clock::time_point{} ? now : s.first_token;
  out.timings = {.prompt_tokens = s.read - s.cached,
                 .generated_tokens = std::ssize(out.ids),
                 .drafted_tokens = s.drafts.drafted,
                 .accepted_tokens = s.drafts.accepted,
                 .prompt_seconds = seconds_between(s.began, first),
                 .generate_seconds = seconds_between(first, now)};
  if (s.thrown) runner_.reset(s.sequence);  // nothing continues from it
  // Up to what was read: the last token was only sampled.
  const auto length = static_cast<size_t>(runner_.length(s.sequence));
  if (cache_) store(s, s.picker.text().first(length), {}, PrefixCache::Worth::wanted);
  if (drafter_) drafter_->end(s.drafts);
  runner_.pool().refund(s.index_bytes);
  runner_.reset(s.sequence);
  free_.push_back(s.sequence);
  promised_ -= s.promised;
  tell_end(s.request, std::move(out), s.cached);
}

void Scheduler::cancel() {
  std::vector<Stream> streams = std::exchange(streams_, {});
  const auto waiting = std::exchange(waiting_, {});
  waiting_count_ = 0;
  for (Stream& s : streams) {
    if (in_pass_) runner_.reset(s.sequence);  // after a failed pass its length says nothing
    end(s, Finish::cancelled);
  }
  for (const auto& [ordinal, requests] : waiting) {
    for (const Request& r : requests) tell_end(r, nothing_of({}), 0);
  }
  in_pass_ = false;
}

Generated generate(Scheduler& scheduler, Request request) {
  std::optional<Generated> answer;
  request.on_end = [&](Generated out, int64_t) { answer = std::move(out); };
  try {
    scheduler.submit(std::move(request));
    while (!answer) scheduler.pass();
  } catch (...) {
    scheduler.cancel();  // what it calls ends with this function
    throw;
  }
  if (answer->thrown) std::rethrow_exception(answer->thrown);
  return std::move(*answer);
}

std::vector<Generated> generate_all(Runner& runner, std::vector<Request> requests,
                                    const sys::FunctionRef<bool(int64_t)>& progress, DraftOptions drafts) {
  std::vector<Generated> answers(requests.size());
  Scheduler scheduler(runner, std::move(drafts));
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
    if (answer.thrown) std::rethrow_exception(answer.thrown);
  }
  return answers;
}

}  // namespace braid::engine
