// Ops that several blocks share, as blocks call them: on Tensors and Params, and taped where the Ctx has a tape. What a
// tape recorded looks at Run::seqs and at the Params when it is walked back: both outlive it.
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

// a + b in `out`.
Tensor add(Run& run, const Tensor& a, const Tensor& b, DType out = DType::f32);

// stream + block in F32: the residual stream after a block, where recomputation starts.
Tensor residual(Run& run, const Tensor& stream, const Tensor& block);

// [a | b]: rows of both side by side, in their type.
Tensor beside(Run& run, const Tensor& a, const Tensor& b);

// The loss of every token, [T] F32: cross-entropy of x W^T with targets [T] I32 (-1: masked) plus z lse^2. token_weight
// [T] F32 is what each counts in the total; with a tape the gradients of x and w are made in the same pass.
Tensor head_loss(Run& run, const Tensor& x, Param& w, const Tensor& targets, const Tensor& token_weight, float z);

// The gradient of a Param that is a vector, [n] F32; of a frozen one, zeros in `spare` that nobody reads.
MutView vector_grad(Ctx& ctx, const Param& p, Tensor& spare);

}  // namespace braid::nn
