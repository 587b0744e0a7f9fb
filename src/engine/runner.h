// A model with the memory of its sequences: passes over pieces of several sequences, prefills and steps together, steps
// that can be undone, sequences forked from others. What chat, run, eval, bench and a server share. One compute thread
// uses it.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/arena.h"
#include "core/ctx.h"
#include "core/numerics.h"
#include "engine/loop.h"
#include "engine/ranks.h"
#include "engine/state_pool.h"
#include "models/model.h"
#include "models/zero_groups.h"
#include "nn/observer.h"
#include "sys/function_ref.h"
#include "sys/interrupt.h"

namespace braid::engine {

struct RunnerOptions {
  Numerics numerics = Numerics::serving(DType::bf16);
  int64_t context = 0;  // 0: what the model was trained with, if memory allows
  // For measurements: the context may be longer than the model was trained with, if it encodes no positions.
  bool beyond_training = false;
  int64_t sequences = 1;  // at once
  // Bytes that the states of all sequences, spare slots and what a PrefixCache keeps may take together: address space
  // is reserved, and each sequence takes what it uses. 0: every sequence can have its whole context, and no more.
  int64_t memory = 0;
  int64_t spare_slots = 0;  // recurrent states besides one per sequence: each tentative step takes one
  int64_t chunk = 512;      // tokens of one prefill pass
  // While answers step, a Scheduler reads as much of prompts in a pass as should take so long, though at least a chunk
  // of the scan; 0: `chunk`.
  double pass_seconds = 0;
  int threads = 0;  // 0: sys::default_threads()
  // Recurrent states that a PrefixCache keeps: F32, as they are in a slot, or I8 (coded_snapshot.h), not with `exact`.
  DType snapshots = DType::f32;
  models::Zeros zeros = models::Zeros::automatic;  // multiplied with `exact`, ranks or an adapter
  std::string adapter{};                           // a folder as PEFT writes it; empty: none
  LoopOptions loop{};                              // of a model with a loop of layers
  Ranks* ranks = nullptr;  // that answer together, each with a part of the model; null: this one alone
};

// Values of RunnerOptions::memory: half of the free memory; or a full context for every sequence plus a PrefixCache
// with room for a few recurrent states.
constexpr int64_t kMemoryShare = -1, kMemoryOfContexts = -2;

constexpr int64_t kContextDefaultMax = 32768;  // more only when asked for: a long context costs time before memory

// What a pass reads of one sequence: its next tokens.
struct Piece {
  int64_t sequence = 0, tokens = 0;
  Phase phase = Phase::prefill;
  // Of a step: its tokens count as read only once `keep` has said how many of them. Until then the sequence is as
  // before, and `reset` is the only other call allowed on it.
  bool tentative = false;
};

class Runner {
 public:
  // The model may be one in training (train/language.h): passes between its steps use its current weights.
  Runner(std::shared_ptr<models::Model> model, const RunnerOptions& options);

  // One pass: `ids` are those of the pieces, concatenated, each piece of a different sequence -> residual stream of
  // every token, [T, D] F32. By the row contract a piece gets the bits that it would get alone. Error when a sequence
  // would exceed the context, or no memory is left; the sequences are unchanged then.
  Tensor forward(std::span<const int32_t> ids, std::span<const Piece> pieces, nn::Probe* probe = nullptr);
  // After a tentative step: retains its first `tokens`, from none to all, and undoes the rest.
  void keep(int64_t sequence, int64_t tokens);
  // A slot with a copy of the recurrent state of a sequence, for `resume`; the caller returns it to the pool.
  // -1 when there is no room.
  int64_t copy_state(int64_t sequence);
  // Lets a sequence without tokens, which `claim` gave a slot, continue after `tokens` tokens from their pages, which
  // it shares from now on, and a recurrent state, which is copied.
  void resume(int64_t sequence, int64_t tokens, std::span<const int32_t> pages, int64_t slot);
  // Gives a sequence its slot before it has read anything. Error when there is no room for it.
  void claim(int64_t sequence) { hold(sequence); }
  // Makes `to` a copy of `from`. Their keys and values are shared until one of them writes.
  void fork(int64_t from, int64_t to);
  // Remembers where a sequence is, for `rewind`; a mark takes a spare slot until `reset`. False: none is free.
  bool mark(int64_t sequence);
  // Back to the mark, if there is one: what was read since is undone. Returns the length, -1 without a mark.
  int64_t rewind(int64_t sequence);
  // Phase::step if the rows are from a step of the only sequence.
  Tensor logits(const Tensor& x, Phase phase = Phase::prefill);
  // The log-probability of a token under one row of logits, as training computes it: with Numerics::exact it has the
  // bits of token_losses.
  double logprob(std::span<const float> logits, int32_t id);
  // Negative log-probabilities of the tokens `targets`, as predicted by the rows of x, [n] F32.
  Tensor token_losses(const Tensor& x, std::span<const int32_t> targets);
  // Rows of x, in this order.
  Tensor rows(const Tensor& x, std::span<const int64_t> wanted);
  // One row of a residual stream that was stored elsewhere, [1, D].
  Tensor row_of(std::span<const float> values);
  Tensor final_hidden(const Tensor& x);
  // Logits of the multi-token prediction for a whole prompt: ids [T], hidden [T, D] after the final norm -> [T-1, V].
  Tensor mtp_logits(std::span<const int32_t> ids, const Tensor& hidden);
  // A step of the prediction block over several sequences: `hidden` [T, D] of consecutive tokens of each, `ids` the
  // token after each -> [T, D], for mtp_head, and for a further step in place of `hidden`. Keys and values are written
  // at the tokens' positions, where the block's attention sees those of earlier steps; nothing else changes. Positions
  // from the sequence's length on are for guesses.
  struct MtpPiece {
    int64_t sequence = 0, position = 0, tokens = 0;
  };
  Tensor mtp_step(std::span<const int32_t> ids, const Tensor& hidden, std::span<const MtpPiece> pieces);
  // Whether that needs no page of another sequence, and none that is not free.
  bool mtp_has_pages(const MtpPiece& piece) const {
    return pool_->owns(piece.sequence, piece.position, piece.position + piece.tokens);
  }
  Tensor mtp_head(const Tensor& x);  // [n, D] from mtp_step -> logits [n, V]

  // Feeds `ids` to the sequence in pieces of `chunk`; `sink` sees the residual stream of each piece. Returns the logits
  // of the last token, [1, V]. Error, before the first piece, when the sequence would exceed the context.
  Tensor prefill(int64_t sequence, std::span<const int32_t> ids, const sys::FunctionRef<void(const Tensor&)>& sink,
                 nn::Probe* probe = nullptr);
  // The next token of one sequence -> its logits [1, V].
  Tensor step(int64_t sequence, int32_t id);
  void reset(int64_t sequence);
  // For measurements: as if a sequence of at least one page (64 tokens) had read `tokens`. Keys and values from its
  // last page on are copies of its first, its recurrent states those it has.
  void pretend(int64_t sequence, int64_t tokens);

  // With ranks what the first one says; so nothing depends on the others' clocks and signals.
  double agreed(double value) const { return options_.ranks ? options_.ranks->agreed(value) : value; }
  bool interrupted() const { return options_.ranks ? options_.ranks->interrupted() : sys::interrupted(); }

  // Shows all passes from here on to an observer; null: no longer.
  void observe(nn::Observer* observer) { observer_ = observer; }

  models::Model& model() { return *model_; }
  const models::Config& config() const { return model_->config(); }
  Ctx& ctx() { return ctx_; }
  nn::StateView& state() { return pool_->view(); }
  StatePool& pool() { return *pool_; }
  const RunnerOptions& options() const { return options_; }  // with the context, memory and steps that were chosen
  // What a sequence of so many tokens takes of RunnerOptions::memory, and what is for sequences of that.
  int64_t sequence_bytes_of(int64_t tokens) const;
  int64_t memory_for_sequences() const;
  // Up to what the model was trained with.
  bool context_may_grow() const { return config().positions_max == 0 || options_.context < config().positions_max; }
  int64_t length(int64_t sequence) const { return own_[static_cast<size_t>(sequence)].length; }
  // In the state's tensors; -1 before the first pass after `reset`.
  int64_t slot(int64_t sequence) const { return own_[static_cast<size_t>(sequence)].slot; }
  int64_t spare_slots() const { return pool_->slots_free() - slotless_; }
  // Of a model with a loop: reads one token of each sequence, `ahead` positions after its length, with so many steps ->
  // its residual stream, [n, D]. Keys and values there are for guesses; nothing else changes.
  Tensor loop_guess(std::span<const int32_t> ids, std::span<const int64_t> sequences, int64_t ahead, int64_t steps);
  // Of a model with a loop: the steps of the last pass.
  int64_t loop_steps() const { return loop_steps_; }

 private:
  struct Own {
    int64_t length = 0;  // tokens read
    int64_t slot = -1;
    int64_t after_slot = -1;                  // of a tentative step: the state after its last token
    int64_t tentative = 0, first = 0;         // its tokens, and its first row of the replays
    int64_t mark_slot = -1, mark_length = 0;  // no slot: no mark
    std::vector<float> loop_state{};          // [D] after the last step of the last token, for warm starts
  };
  nn::Run run(const SeqMap& seqs, nn::Probe* probe);
  Tensor forward_layers(nn::Run& run, const Tensor& ids);
  // `own` where this rank has the head, on all ranks.
  Tensor from_head(const Shape& shape, const sys::FunctionRef<Tensor()>& own);
  Tensor loop_starts(const SeqMap& seqs, std::span<const Piece> pieces);
  Tensor forward_loop(nn::Run& run, const Tensor& ids, std::span<const Piece> pieces);
  void fill_loop_states(const Seq& seq);
  Own& own(int64_t sequence);
  void hold(int64_t sequence);
  int64_t take_spare();
  void replay(const Own& own, int64_t tokens);
  Tensor ids_tensor(std::span<const int32_t> ids);

  std::shared_ptr<models::Model> model_;
  RunnerOptions options_;
  Arena arena_;
  Ctx ctx_;
  std::unique_ptr<StatePool> pool_;
  nn::Observer* observer_ = nullptr;
  std::vector<Own> own_;             // by sequence
  std::vector<nn::Replay> replays_;  // of the last pass
  // Of a pass and of its logits, kept so that a step allocates nothing.
  SeqMap seqs_{}, head_seqs_{};
  std::vector<uint8_t> named_{};  // sequences of the pass
  int64_t slotless_ = 0;          // how many of them have no slot
  int64_t loop_steps_ = 0;
};

// RunnerOptions::memory in bytes, or kMemoryOfContexts as it is. Error when that is more than is free.
int64_t choose_memory(const RunnerOptions& options);
// The context to use: the requested one, else the model's, limited to what fits the free memory for every sequence, or
// RunnerOptions::memory for one. Error when not even one chunk fits, or when the requested one does not; both say how
// much is needed. Error, too, when it is longer than the model allows.
int64_t choose_context(const models::Model& model, const RunnerOptions& options);

}  // namespace braid::engine
