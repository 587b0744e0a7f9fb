// Ops that several blocks share, as blocks call them: on Tensors and Params, and taped if the Ctx has a tape. The
// recorded closures refer to Run::seqs and the Params: both must outlive the backward pass.
#pragma once
#include "core/param.h"
#include "core/tape.h"
#include "kernels/act/act.h"
#include "nn/run.h"

namespace braid::nn {

// ids [T] I32 -> rows of the table, [T, D] in `out`.
Tensor embedding(Run& run, const Tensor& ids, Param& table, DType out = DType::f32);

// x [T, K] -> x W^T + b, [T, N] in `out`; with the adapter of W, if it has one.
Tensor linear(Run& run, const Tensor& x, Param& w, DType out = DType::f32, Param* bias = nullptr);

struct RmsNormOptions {
  int64_t groups = 1;
  float eps = 1e-5f;
  DType out = DType::f32;
};

// norm(x) * w, or norm(x * silu(z)) * w; w is one row of D values in F32.
Tensor rms_norm(Run& run, const Tensor& x, Param& w, const RmsNormOptions& options, const Tensor& z = {});
Tensor layer_norm(Run& run, const Tensor& x, Param& w, Param& bias, float eps, DType out);

// act(x), or act(gate) * x, in Numerics::products.
Tensor act(Run& run, const Tensor& x, const Tensor& gate, Act kind);

// scale x in `out`.
Tensor scaled(Run& run, const Tensor& x, float scale, DType out);
// x in `out`: itself, if it is in that type.
Tensor converted(Run& run, const Tensor& x, DType out);

// a + b in `out`.
Tensor add(Run& run, const Tensor& a, const Tensor& b, DType out = DType::f32);

// stream + block in F32: the residual stream after a block, where recomputation starts.
Tensor residual(Run& run, const Tensor& stream, const Tensor& block);

// x with a fraction `rate` dropped and the rest scaled up, if the pass draws random numbers (Run::draws); else x. `use`
// distinguishes the draws of one layer.
Tensor dropout(Run& run, const Tensor& x, float rate, uint32_t layer, uint32_t use);

// [a | b]: the rows of both concatenated, in their type.
Tensor concatenate(Run& run, const Tensor& a, const Tensor& b);

// The cross-entropy of every token, [T] F32: of x W^T with targets [T] I32 (-1: masked), and the log-sum of its logits.
// token_weight [T] F32 weights loss + z lse^2 of each token in the total; with a tape the gradients of x and w are
// computed in the same pass.
struct HeadLosses {
  Tensor loss, lse;
};
HeadLosses head_loss(Run& run, const Tensor& x, Param& w, const Tensor& targets, const Tensor& token_weight, float z);

// The same loss for objectives in which the weight of a token depends on the losses: an ordinary value, whose gradient
// is known only in the backward pass, which recomputes the logits.
Tensor token_loss(Run& run, const Tensor& x, Param& w, const Tensor& targets);

// Divergence of the head's next tokens from a teacher's, and cross-entropy, [T] F32 each; with a tape the gradients of
// token_weight (kl_weight T^2 kl + ce_weight ce) are computed in the same pass (kernels/head_loss/distill_loss.h). The
// teacher is a head with what it reads, or K log-probabilities per token.
struct Teacher {
  Tensor x{};                        // [T, Dt] in Numerics::products
  Weight head{};                     // [V, Dt]
  Tensor top_ids{}, top_logprobs{};  // [T, K] instead
  float temperature = 1, kl_weight = 1, ce_weight = 0;
};
struct DistillLosses {
  Tensor kl, ce;
};
DistillLosses distill_loss(Run& run, const Tensor& x, Param& w, const Tensor& targets, const Tensor& token_weight,
                           const Teacher& teacher);

// Copies rows between views of one dtype whose rows may be strided.
void copy_rows(const View& from, const MutView& to);

// The gradient of a Param that is a vector, [n] F32; of a frozen one, zeros in `spare`, which are never read.
MutView vector_grad(Ctx& ctx, const Param& p, Tensor& spare);

}  // namespace braid::nn
