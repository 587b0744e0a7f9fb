// Sequence parallelism (arXiv 2205.05198, section 4.2.2): between blocks each rank of Run::tensor holds its share of
// the tokens (SequenceShares), so that norms, dropout and the residual stream are divided too. A block gets the tokens
// of all and leaves shares of the sum of its parts: together these send the bytes of the all-reduce that they replace.
// What a block reads is not retained but gathered once more for the backward pass.
#pragma once
#include "nn/ops.h"

namespace braid::nn {

// Consecutive shares of the rows of `seqs`, the first ones larger by one row. Error when there are fewer rows than
// ranks.
void share_rows(const SeqMap& seqs, int rank, int ranks, SequenceShares& shares);
// Rows [begin, begin + count) of `seqs`.
void take_rows(const SeqMap& seqs, int64_t begin, int64_t count, SeqMap& out);

// x [own, D] -> [T, D] of all ranks, each of which computes with its part of the block: the gradient is the sum of
// theirs.
Tensor gather_to_parts(Run& run, const Tensor& x);
// This rank's rows [own, D] of the sum of all ranks' y [T, D] F32.
Tensor scatter_sum(Run& run, const Tensor& y);

// The same around a block that every rank has whole, where all gradients are equal: [own, D] -> [T, D] and back.
Tensor gather_to_copies(Run& run, const Tensor& x);
Tensor own_rows(Run& run, const Tensor& y);

}  // namespace braid::nn
