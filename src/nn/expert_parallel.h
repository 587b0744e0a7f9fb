// Experts that ranks share (expert parallelism, arXiv 2006.16668; folded over the ranks of tensor and data parallelism,
// arXiv 2504.14960): a token's rows travel to the ranks of its experts and back (nn/expert_routes.h). All is taped; the
// gradients travel the same ways. Ranks that have their tokens in common (Run::tensor) share them out, so that every
// token travels once, and each of them adds its part of the outputs to the block's sum.
//
// What ranks do together is never repeated by a recomputation, so the rows that arrived are retained for backward.
#pragma once
#include <memory>

#include "nn/expert_routes.h"
#include "nn/run.h"

namespace braid::nn {

// Of `tokens` tokens that this rank has: those that it sends to experts.
Range shared_out(const Run& run, int64_t tokens);
// Rows `part` of x, and of a tensor of `rows` rows, the others 0, back. Both are x itself where the part is all of it.
Tensor take_rows(Run& run, const Tensor& x, const Range& part);
Tensor place_rows(Run& run, const Tensor& x, const Range& part, int64_t rows);

// What arrived for this rank's experts, [N, ...]: one slot a row.
struct ExpertRows {
  std::shared_ptr<const ExpertRoutes> routes{};  // shared by the closures of the tape, which end one by one
  Tensor x{}, experts{}, weights{};              // [N, R] as sent, [N, 1] I32 and F32
};
// Sends x [T, R] to experts [T, K] I32 of `count`, with weights [T, K] F32.
ExpertRows to_experts(Run& run, const Tensor& x, const Tensor& experts, const Tensor& weights, int64_t count);
// The sums over the slots of what they made of it, y [N, R] F32: [T, R] in `out`.
Tensor from_experts(Run& run, const ExpertRows& rows, const Tensor& y, int64_t tokens, DType out);

}  // namespace braid::nn
