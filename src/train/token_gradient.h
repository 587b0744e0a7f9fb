// From the losses of tokens to the gradient of a loss that is computed from them: what tasks over answers share.
#pragma once
#include <cstring>

#include "core/tape.h"
#include "data/batch.h"
#include "nn/run.h"
#include "train/objective.h"

namespace braid::train {

// Token losses [T] of a pass, and the gradient that a task sets for them, initially 0.
class TokenGradient {
 public:
  TokenGradient(nn::Run& run, const Tensor& losses)
      : ctx_(run.ctx), losses_(losses), gradient_(ctx_.arena, DType::f32, losses.shape()) {
    if (!ctx_.dry) std::memset(gradient_.mut().data, 0, static_cast<size_t>(gradient_.view().bytes()));
  }
  const float* losses() const { return losses_.view().as<float>(); }
  // The derivative in the log-probability of target t, minus its loss.
  void of_logprob(size_t t, double derivative) { gradient_.mut().as<float>()[t] = static_cast<float>(-derivative); }
  // The same for all targets of a sequence.
  void of_logprobs(const Seq& seq, const data::Batch& rows, double derivative) {
    for (auto t = static_cast<size_t>(seq.start); t < static_cast<size_t>(seq.start + seq.len); ++t) {
      if (rows.targets[t] != data::kMasked) of_logprob(t, derivative);
    }
  }
  // Leaves the gradient on the tape, if there is one.
  void finish() {
    if (ctx_.tape) ctx_.tape->add_grad(ctx_, losses_, gradient_);
  }

 private:
  Ctx& ctx_;
  Tensor losses_, gradient_;
};

}  // namespace braid::train
