// The residual stream divided by its channels (AxoNN, arXiv 2502.08145, section 4): each rank of Run::hidden has an
// equal run of them. A product that reads the stream has the columns of its weight that read this rank's, and its
// outputs are summed over these ranks; one that writes it has the rows that give this rank's, and the gradients of its
// inputs are summed (nn::linear does both). With Run::tensor for the other side of each weight the two groups swap
// roles from one product to the next, so that nothing is laid out anew between them.
#pragma once
#include "nn/ops.h"

namespace braid::nn {

enum class HiddenSide : uint8_t { none, reads, writes };
// How the products of a role see the stream.
HiddenSide hidden_side(ParamRole role);

// As rms_norm over the channels of all ranks, w being this one's: ranks add up the squares of each token, and in the
// backward pass one more number for each.
Tensor rms_norm_part(Run& run, const Tensor& x, Param& w, float eps, DType out);

// x [T, own] -> [T, D] of all ranks. `parts`: each computes a part with it, so that its gradient is the sum of theirs;
// else all compute the same.
Tensor gather_channels(Run& run, const Tensor& x, bool parts);
// This rank's channels [T, own] F32 of y [T, D] F32. `parts`: of the sum of all ranks' y; else all have the same.
Tensor own_channels(Run& run, const Tensor& y, bool parts);

}  // namespace braid::nn
