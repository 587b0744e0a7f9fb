#include "engine/runner.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/cross_entropy/cross_entropy.h"
#include "report/units.h"
#include "sys/error.h"
#include "sys/machine.h"
#include "sys/memory.h"

namespace braid::engine {
namespace {

// Above a GiB always in GiB, so that what there is and what is needed compare.
std::string size_text(int64_t bytes) {
  constexpr int64_t kGib = int64_t{1} << 30;
  return bytes < kGib ? report::bytes(bytes) : fmt::format("{:.1f} GiB", static_cast<double>(bytes) / kGib);
}

std::vector<nn::StateShape> shapes_of(const models::Model& model, const LoopOptions& loop) {
  return model.state_shapes(model.config().loop ? resolved(*model.config().loop, loop).states : 1);
}

int64_t whole_pages(int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens * kPageTokens; }

// What sequences of a whole context each take. With kMemoryOfContexts also the states of a conversation's last turns,
// keys and values of answers that a template rewrote, and what the tree itself takes.
int64_t bytes_of_contexts(const SequenceBytes& bytes, const RunnerOptions& options, int64_t sequences,
                          int64_t context) {
  const int64_t states = sequences + options.spare_slots, paged = context * sequences * bytes.per_token;
  if (options.memory != kMemoryOfContexts) return states * bytes.fixed + paged;
  constexpr int64_t kStates = 4, kTree = 1 << 20;
  return (states + kStates) * bytes.fixed + paged + paged / 8 + kTree;
}

int64_t memory_of_rank(const RunnerOptions& options) {
  return sys::memory_available() / (options.ranks ? options.ranks->on_this_machine() : 1);
}

}  // namespace

int64_t choose_memory(const RunnerOptions& options) {
  const int64_t available = memory_of_rank(options);
  if (options.memory == kMemoryShare) return available / 2;  // the weights need the page cache too
  if (options.memory > available) {
    fail_environment("memory", {.what = "less is free than the states of sequences may take",
                                .got = size_text(options.memory),
                                .expected = "at most the " + size_text(available) + " that are free",
                                .hint = "a smaller --memory"});
  }
  return options.memory;
}

int64_t choose_context(const models::Model& model, const RunnerOptions& options) {
  const SequenceBytes bytes =
      sequence_bytes(shapes_of(model, options.loop), options.numerics.caches(), options.numerics.exact);
  const bool shared = options.memory > 0;
  const int64_t sequences = shared ? 1 : std::max<int64_t>(options.sequences, 1);
  const auto need = [&](int64_t tokens) {
    return bytes_of_contexts(bytes, options, sequences, options.memory != 0 ? whole_pages(tokens) : tokens);
  };
  const int64_t available = shared ? options.memory : memory_of_rank(options);
  const int64_t trained = model.config().positions_max,
                limit = options.beyond_training ? model.config().positions_limit() : trained;
  const auto too_much = [&](int64_t tokens) {
    fail_environment("memory", {.what = fmt::format("a context of {} tokens does not fit", tokens),
                                .got = fmt::format("{} {}", size_text(available), shared ? "of --memory" : "free"),
                                .expected = fmt::format("{} for the states of {} sequence{}", size_text(need(tokens)),
                                                        sequences, sequences == 1 ? "" : "s"),
                                .hint = shared ? "a larger --memory, or a smaller -c" : "a smaller -c"});
  };
  if (options.context > 0) {
    if (limit > 0 && options.context > limit) {
      fail("context", {.what = "longer than the model allows",
                       .got = std::to_string(options.context),
                       .expected = fmt::format("at most {} (max_position_embeddings)", limit)});
    }
    if (need(options.context) > available) too_much(options.context);
    return options.context;
  }
  int64_t context = std::min(trained > 0 ? trained : kContextDefaultMax, kContextDefaultMax);
  // Half of the free memory: the weights need the page cache too.
  while (context > 64 && need(context) > (shared ? available : available / 2)) context /= 2;
  if (need(context) > available) too_much(context);
  return context;
}

Runner::Runner(std::shared_ptr<models::Model> model, const RunnerOptions& options)
    : model_(std::move(model)), options_(options), ctx_{.arena = arena_} {
  if (Numerics& n = options_.numerics; !n.kv && !n.exact && n.products == DType::bf16) n.kv = model_->config().kv_cache;
  options_.memory = choose_memory(options_);
  options_.context = choose_context(*model_, options_);
  if (options_.ranks) {
    CHECK(options_.memory == 0, "a budget of {} bytes, which ranks would spend differently", options_.memory);
    options_.context = options_.ranks->least(options_.context);
  }
  if (config().loop) options_.loop = resolved(*config().loop, options_.loop);
  const std::vector<nn::StateShape> shapes = shapes_of(*model_, options_.loop);
  const CacheTypes types = options_.numerics.caches();
  const SequenceBytes bytes = sequence_bytes(shapes, types, options_.numerics.exact);
  if (options_.memory == kMemoryOfContexts)
    options_.memory = bytes_of_contexts(bytes, options_, options_.sequences, whole_pages(options_.context));
  // On CPUs with tiles nothing is rounded to 8 bits.
  const bool rounds = options_.numerics.int8 && !sys::machine().amx;
  options_.numerics.code_steps = options_.sequences == 1 && !options_.numerics.exact && !rounds;
  if (options_.threads > 0) ctx_.threads = options_.threads;
  PoolOptions pool{.sequences = options_.sequences,
                   .slots = options_.sequences + options_.spare_slots,
                   .context = options_.context,
                   .types = types,
                   .context_may_grow = context_may_grow(),
                   .exact = options_.numerics.exact};
  if (options_.memory > 0) {
    constexpr int64_t kMost = int64_t{1} << 20;  // where they are so small that the budget is no limit
    pool.budget = options_.memory;
    if (bytes.fixed > 0) pool.slots += std::min(kMost, options_.memory / bytes.fixed);
    pool.pages = std::min(kMost, options_.memory / std::max<int64_t>(bytes.per_token * kPageTokens, 1));
  }
  pool_ = std::make_unique<StatePool>(shapes, pool);
  own_.resize(static_cast<size_t>(options_.sequences));
  slotless_ = options_.sequences;
}

int64_t Runner::sequence_bytes_of(int64_t tokens) const {
  return pool_->slot_bytes() + whole_pages(tokens) / kPageTokens * pool_->page_bytes();
}

int64_t Runner::memory_for_sequences() const { return options_.memory - options_.spare_slots * pool_->slot_bytes(); }

nn::Run Runner::run(const SeqMap& seqs, nn::Probe* probe) {
  nn::Run run{.ctx = ctx_,
              .seqs = seqs,
              .state = pool_->view(),
              .numerics = options_.numerics,
              .probe = probe,
              .observer = observer_};
  if (options_.ranks) options_.ranks->join(run);
  return run;
}

Runner::Own& Runner::own(int64_t sequence) {
  CHECK(sequence >= 0 && sequence < std::ssize(own_), "sequence {} of {}", sequence, own_.size());
  return own_[static_cast<size_t>(sequence)];
}

void Runner::hold(int64_t sequence) {
  Own& o = own(sequence);
  if (o.slot >= 0) return;
  o.slot = pool_->take_slot();
  if (o.slot < 0) {
    fail_environment("memory", {.what = "no recurrent state is left for a sequence",
                                .got = fmt::format("{} in use", pool_->slots_in_use()),
                                .hint = "fewer sequences at once"});
  }
  --slotless_;
  pool_->clear_slot(o.slot);
}

int64_t Runner::take_spare() { return spare_slots() > 0 ? pool_->take_slot() : -1; }

Tensor Runner::ids_tensor(std::span<const int32_t> ids) {
  Tensor t(arena_, DType::i32, {static_cast<int64_t>(ids.size())});
  for (int32_t id : ids) {
    if (id < 0 || id >= config().vocab) {
      fail(
          "token ids",
          {.what = "no such token", .got = std::to_string(id), .expected = fmt::format("0 to {}", config().vocab - 1)});
    }
  }
  std::memcpy(t.mut().data, ids.data(), ids.size_bytes());
  return t;
}

Tensor Runner::forward(std::span<const int32_t> ids, std::span<const Piece> pieces, nn::Probe* probe) {
  if (options_.ranks) options_.ranks->begin_pass();
  SeqMap& seqs = seqs_;
  seqs.clear();
  named_.assign(own_.size(), 0);
  for (const Piece& piece : pieces) {
    hold(piece.sequence);
    const Own& o = own(piece.sequence);
    CHECK(!std::exchange(named_[static_cast<size_t>(piece.sequence)], 1), "sequence {} twice in a pass",
          piece.sequence);
    CHECK(o.after_slot < 0, "sequence {} waits for `keep`", piece.sequence);
    CHECK(!piece.tentative || piece.phase == Phase::step, "a tentative prefill of sequence {}", piece.sequence);
    seqs.add(piece.tokens, o.length, o.slot);
    Seq& seq = seqs.seqs.back();
    seq.table = piece.sequence;
    seq.phase = piece.phase;
  }
  CHECK(seqs.tokens() == std::ssize(ids), "{} tokens, {} ids", seqs.tokens(), ids.size());
  const Tensor batch = ids_tensor(ids);
  for (const Seq& s : seqs.seqs) pool_->prepare(ctx_, s.table, s.pos0, s.pos0 + s.len);
  replays_.clear();
  int64_t rows = 0;  // of tentative steps
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (!pieces[i].tentative) continue;
    seqs.seqs[i].trail = std::ssize(seqs.trails);
    Own& o = own(pieces[i].sequence);
    o.after_slot = take_spare();
    CHECK(o.after_slot >= 0, "no free slot for a tentative step of sequence {}", pieces[i].sequence);
    o.tentative = pieces[i].tokens;
    o.first = rows;
    rows += o.tentative;
    seqs.trails.insert(seqs.trails.end(), static_cast<size_t>(o.tentative), o.after_slot);
  }
  nn::Run r = run(seqs, probe);
  if (rows > 0) r.replays = &replays_;
  Tensor x = config().loop ? forward_loop(r, batch, pieces) : forward_layers(r, batch);
  for (const Piece& piece : pieces) own(piece.sequence).length += piece.tentative ? 0 : piece.tokens;
  return x;
}

// A stage does not wait for those behind it.
Tensor Runner::forward_layers(nn::Run& run, const Tensor& ids) {
  Ranks* ranks = options_.ranks;
  if (!ranks || ranks->division().pp == 1) return model_->forward(run, ids);
  const Tensor in = ranks->stream_in(ctx_, ids.dim(0), config().hidden);
  Tensor x = model_->forward(run, ids, in, {0, std::ssize(config().layers)});
  ranks->stream_out(x);
  return x;
}

Tensor Runner::from_head(const Shape& shape, const sys::FunctionRef<Tensor()>& own) {
  if (!options_.ranks) return own();
  Tensor y = options_.ranks->last_stage() ? own() : Tensor(arena_, DType::f32, shape);
  options_.ranks->from_last_stage(y);
  return y;
}

// All tokens: the state after the last of them is there. Fewer: the others are read again, without the products.
void Runner::keep(int64_t sequence, int64_t tokens) {
  Own& o = own(sequence);
  CHECK(tokens >= 0 && tokens <= o.tentative, "{} tokens of a tentative step of {}", tokens, o.tentative);
  if (o.after_slot < 0) return;
  if (tokens == o.tentative) {
    std::swap(o.slot, o.after_slot);
  } else if (tokens > 0) {
    replay(o, tokens);
  }
  pool_->give_slot(std::exchange(o.after_slot, -1));
  o.tentative = 0;
  o.length += tokens;
  pool_->truncate(sequence, o.length);
}

// A state that is stored in fewer bits is rounded after every token.
void Runner::replay(const Own& o, int64_t tokens) {
  const bool whole = options_.numerics.exact || options_.numerics.caches().ssm == DType::f32;
  const int64_t piece = whole ? tokens : 1;
  for (int64_t t = 0; t < tokens; t += piece) {
    SeqMap seqs = SeqMap::one(piece, o.length + t, o.slot);
    seqs.seqs[0].phase = Phase::step;
    nn::Run r = run(seqs, nullptr);
    for (const nn::Replay& block : replays_) block(r, o.first + t);
  }
}

int64_t Runner::copy_state(int64_t sequence) {
  hold(sequence);
  CHECK(own(sequence).after_slot < 0, "sequence {} waits for `keep`", sequence);
  const int64_t copy = pool_->take_slot();
  if (copy < 0) return copy;
  try {
    pool_->copy_slot(ctx_, slot(sequence), copy);
  } catch (...) {
    pool_->give_slot(copy);
    throw;
  }
  return copy;
}

void Runner::resume(int64_t sequence, int64_t tokens, std::span<const int32_t> pages, int64_t slot) {
  Own& o = own(sequence);
  CHECK(o.length == 0 && o.slot >= 0 && tokens <= std::ssize(pages) * kPageTokens,
        "sequence {} of {} tokens, slot {}, for {} tokens in {} pages", sequence, o.length, o.slot, tokens,
        pages.size());
  pool_->share(pages, sequence);
  if (slot >= 0) pool_->copy_slot(ctx_, slot, o.slot);
  o.length = tokens;
}

void Runner::fork(int64_t from, int64_t to) {
  CHECK(from != to && own(from).after_slot < 0, "a fork of sequence {} to {}", from, to);
  reset(to);
  hold(from);
  hold(to);
  own(to).length = length(from);
  pool_->share(from, to, length(from));
  pool_->copy_slot(ctx_, slot(from), slot(to));
}

bool Runner::mark(int64_t sequence) {
  Own& o = own(sequence);
  CHECK(o.after_slot < 0, "sequence {} waits for `keep`", sequence);
  hold(sequence);
  if (o.mark_slot < 0) o.mark_slot = take_spare();
  if (o.mark_slot < 0) return false;
  pool_->copy_slot(ctx_, o.slot, o.mark_slot);
  o.mark_length = o.length;
  return true;
}

int64_t Runner::rewind(int64_t sequence) {
  Own& o = own(sequence);
  CHECK(o.after_slot < 0, "sequence {} waits for `keep`", sequence);
  if (o.mark_slot < 0) return -1;
  pool_->copy_slot(ctx_, o.mark_slot, o.slot);
  pool_->truncate(sequence, o.mark_length);
  return o.length = o.mark_length;
}

Tensor Runner::logits(const Tensor& x, Phase phase) {
  head_seqs_.clear();
  if (phase == Phase::step) {
    head_seqs_.add(x.dim(0));
    head_seqs_.seqs[0].phase = phase;
  }
  nn::Run r = run(head_seqs_, nullptr);
  return from_head({x.dim(0), config().vocab}, [&] { return model_->logits(r, x); });
}

double Runner::logprob(std::span<const float> logits, int32_t id) {
  float loss = 0;
  braid::run(ctx_, CrossEntropyFwd{.logits = view_of(logits.data(), {1, std::ssize(logits)}),
                                   .targets = view_of(&id, {1}),
                                   .loss = mut_view_of(&loss, {1})});
  return static_cast<double>(0.0f - loss);
}

Tensor Runner::token_losses(const Tensor& x, std::span<const int32_t> targets) {
  const SeqMap none;
  nn::Run r = run(none, nullptr);
  return from_head({x.dim(0)}, [&] { return model_->token_losses(r, x, ids_tensor(targets)); });
}

Tensor Runner::final_hidden(const Tensor& x) {
  const SeqMap none;
  nn::Run r = run(none, nullptr);
  return model_->final_hidden(r, x);
}

Tensor Runner::rows(const Tensor& x, std::span<const int64_t> wanted) {
  Tensor out(arena_, x.dtype(), {static_cast<int64_t>(wanted.size()), x.dim(1)});
  const int64_t bytes = x.dim(1) * size_of(x.dtype());
  for (size_t i = 0; i < wanted.size(); ++i) {
    std::memcpy(out.mut().data + static_cast<int64_t>(i) * bytes, x.view().data + wanted[i] * bytes,
                static_cast<size_t>(bytes));
  }
  return out;
}

Tensor Runner::row_of(std::span<const float> values) {
  Tensor out(arena_, DType::f32, {1, std::ssize(values)});
  std::memcpy(out.mut().data, values.data(), values.size_bytes());
  return out;
}

Tensor Runner::mtp_logits(std::span<const int32_t> ids, const Tensor& hidden) {
  const auto rows = static_cast<int64_t>(ids.size()) - 1;
  const SeqMap seqs = SeqMap::one(rows);
  nn::Run r = run(seqs, nullptr);
  std::vector<int64_t> all(static_cast<size_t>(rows));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  return model_->mtp_logits(r, model_->mtp_step(r, ids_tensor(ids.subspan(1)), this->rows(hidden, all)));
}

Tensor Runner::mtp_step(std::span<const int32_t> ids, const Tensor& hidden, std::span<const MtpPiece> pieces) {
  SeqMap seqs;
  for (const MtpPiece& piece : pieces) {
    const Own& o = own(piece.sequence);
    CHECK(o.after_slot < 0, "sequence {} waits for `keep`", piece.sequence);
    seqs.add(piece.tokens, piece.position, o.slot);
    seqs.seqs.back().table = piece.sequence;
    if (piece.tokens == 1) seqs.seqs.back().phase = Phase::step;
    pool_->prepare(ctx_, piece.sequence, piece.position, piece.position + piece.tokens);
  }
  CHECK(seqs.tokens() == std::ssize(ids) && seqs.tokens() == hidden.dim(0), "{} tokens, {} ids, {} rows", seqs.tokens(),
        ids.size(), hidden.dim(0));
  nn::Run r = run(seqs, nullptr);
  return model_->mtp_step(r, ids_tensor(ids), hidden);
}

Tensor Runner::mtp_head(const Tensor& x) {
  SeqMap seqs = SeqMap::one(x.dim(0));
  nn::Run r = run(seqs, nullptr);
  return model_->mtp_logits(r, x);
}

Tensor Runner::prefill(int64_t sequence, std::span<const int32_t> ids,
                       const sys::FunctionRef<void(const Tensor&)>& sink, nn::Probe* probe) {
  CHECK(!ids.empty(), "no tokens");
  pool_->check_fits(length(sequence) + std::ssize(ids));
  Tensor x;
  for (size_t begin = 0; begin < ids.size(); begin += static_cast<size_t>(options_.chunk)) {
    const auto part = ids.subspan(begin, std::min(static_cast<size_t>(options_.chunk), ids.size() - begin));
    const Piece piece{.sequence = sequence, .tokens = std::ssize(part)};
    x = forward(part, {&piece, 1}, probe);
    if (probe) probe->replay_row += static_cast<int64_t>(part.size());
    sink(x);
  }
  const int64_t last = x.dim(0) - 1;
  return logits(rows(x, {&last, 1}));
}

void Runner::pretend(int64_t sequence, int64_t tokens) {
  Own& o = own(sequence);
  CHECK(o.after_slot < 0 && tokens >= o.length, "{} tokens of sequence {} of {}", tokens, sequence, o.length);
  pool_->repeat_page(ctx_, sequence, o.length, tokens);
  o.length = tokens;
}

Tensor Runner::step(int64_t sequence, int32_t id) {
  const Piece piece{.sequence = sequence, .tokens = 1, .phase = Phase::step};
  return logits(forward({&id, 1}, {&piece, 1}), Phase::step);
}

void Runner::reset(int64_t sequence) {
  Own& o = own(sequence);
  if (o.after_slot >= 0) pool_->give_slot(std::exchange(o.after_slot, -1));
  o.tentative = 0;
  if (o.mark_slot >= 0) pool_->give_slot(std::exchange(o.mark_slot, -1));
  o.length = 0;
  o.loop_state.clear();
  pool_->truncate(sequence, 0);
  if (o.slot < 0) return;
  pool_->give_slot(std::exchange(o.slot, -1));
  ++slotless_;
}

}  // namespace braid::engine
