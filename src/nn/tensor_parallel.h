// Ops on the borders of what ranks compute in parts (Megatron-LM, arXiv 1909.08053, section 3): every rank of
// Run::tensor reads the same x, computes with its part of a block's parameters, and the parts add up. All are taped;
// without ranks they return their input. Sums are those of Group::all_reduce, the same bits on every rank. With
// sequence parallelism (nn/sequence_parallel.h) x, and the sums, are this rank's rows alone.
#pragma once
#include "nn/ops.h"

namespace braid::nn {

// x, which all ranks have or share; its gradient is the sum of theirs.
Tensor to_parts(Run& run, const Tensor& x);
// The sum of all ranks' y [T, D] F32; its gradient goes to each of them.
Tensor sum_of_parts(Run& run, const Tensor& y);

// The same for the ranks of another group.
Tensor to_parts(Run& run, comm::Group& ranks, const Tensor& x);
Tensor sum_of_parts(Run& run, comm::Group& ranks, const Tensor& y);

// Of a norm in groups, of which ranks of Run::tensor have some channels each: all groups, the first one here, and the
// channels of each on all ranks. No groups: a rank has whole ones.
struct NormAcross {
  int64_t groups = 0, first = 0, channels = 0;
};
// As nn::rms_norm with a gate, where `options.groups` counts those that x has a part of. Ranks add up the squares of
// each token, and in the backward pass one more number for each: those of the group alone (Run::sharers), or without a
// tape, where they may have unequal parts, all ranks, each with zeros for the groups of others.
Tensor rms_norm_across(Run& run, const Tensor& x, Param& w, const RmsNormOptions& options, const NormAcross& all,
                       const Tensor& z);

// y [n, own], columns of what all ranks of Run::tensor have, as even a share as can be (core/param.h, share_of) ->
// [n, columns]. Without a tape.
Tensor gather_columns(Run& run, const Tensor& y, int64_t columns);

// As nn::embedding, where the table has rows [first, first + table.rows) of the vocabulary: the sum is the whole's.
Tensor embedding_part(Run& run, const Tensor& ids, Param& table, int64_t first);

// As nn::head_loss without z, where w has rows [first, first + w.rows) of the vocabulary and x went through to_parts.
// Logits exist for up to 2048 tokens at a time. Where Run::hidden divides the channels of x and w, logits are summed.
HeadLosses head_loss_part(Run& run, const Tensor& x, Param& w, const Tensor& targets, const Tensor& token_weight,
                          int64_t first);

}  // namespace braid::nn
