// A model with its memory, ready to read tokens: passes over flat batches of sequences, prefill in pieces, one-token
// steps. What chat, run, eval, bench and a server share. One compute thread uses it.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/arena.h"
#include "core/ctx.h"
#include "core/numerics.h"
#include "engine/state_pool.h"
#include "models/model.h"

namespace braid::engine {

struct RunnerOptions {
  Numerics numerics = Numerics::serving(DType::bf16);
  int64_t context = 0;  // 0: what the model allows and memory holds
  int64_t slots = 1;
  int64_t chunk = 512;    // tokens of one prefill pass
  int threads = 0;        // 0: sys::default_threads()
  std::string adapter{};  // a folder as PEFT writes it; empty: none
};

constexpr int64_t kContextDefaultMax = 32768;  // more only when asked for: a long context costs time before memory

class Runner {
 public:
  // The model may be one in training (train/language.h): passes between its steps see its newest numbers.
  Runner(std::shared_ptr<models::Model> model, const RunnerOptions& options);

  // Residual stream of every token of the batch, [T, D] F32. Slots grow as needed.
  Tensor forward(std::span<const int32_t> ids, const SeqMap& seqs, nn::Phase phase, nn::Probe* probe = nullptr);
  Tensor logits(const Tensor& x);
  // Losses of the tokens `targets` where the rows of x predict them, [n] F32: minus their log-probabilities.
  Tensor token_losses(const Tensor& x, std::span<const int32_t> targets);
  // Rows of x, in this order.
  Tensor rows(const Tensor& x, std::span<const int64_t> wanted);
  Tensor final_hidden(const Tensor& x);
  // Logits of the multi-token prediction for a whole prompt: ids [T], hidden [T, D] after the final norm -> [T-1, V].
  Tensor mtp_logits(std::span<const int32_t> ids, const Tensor& hidden);

  // Feeds `ids` to the slot in pieces of `chunk`; `sink` sees the residual stream of each piece. Returns the logits of
  // the last token, [1, V].
  Tensor prefill(int64_t slot, std::span<const int32_t> ids, const sys::FunctionRef<void(const Tensor&)>& sink,
                 nn::Probe* probe = nullptr);
  // The next token of one slot -> its logits [1, V].
  Tensor step(int64_t slot, int32_t id);
  void reset(int64_t slot);

  models::Model& model() { return *model_; }
  const models::Config& config() const { return model_->config(); }
  Ctx& ctx() { return ctx_; }
  nn::StateView& state() { return pool_->view(); }
  const RunnerOptions& options() const { return options_; }  // with the context that was chosen
  int64_t length(int64_t slot) const { return length_[static_cast<size_t>(slot)]; }

 private:
  nn::Run run(const SeqMap& seqs, nn::Phase phase, nn::Probe* probe);
  Tensor upload(std::span<const int32_t> ids);

  std::shared_ptr<models::Model> model_;
  RunnerOptions options_;
  Arena arena_;
  Ctx ctx_;
  std::unique_ptr<StatePool> pool_;
  std::vector<int64_t> length_;  // tokens in each slot
};

// The context to use: the one asked for, else the model's, cut to what the free memory holds. Error when not even that
// of one chunk fits, or when more is asked for than fits; both say how much is needed.
int64_t choose_context(const models::Model& model, const RunnerOptions& options);

}  // namespace braid::engine
