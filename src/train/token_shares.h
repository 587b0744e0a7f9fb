// The tokens of a part of a batch that a rank computes: parallel.cp divides them among ranks, parallel.sp once more
// among those of a model.
#pragma once
#include "models/config.h"
#include "nn/context_parallel.h"
#include "train/mesh.h"

namespace braid::train {

// How the blocks of a model read tokens of other ranks.
struct ContextModes {
  bool ring = false, states = false;  // nn::ContextShares
  nn::TokenOrder order() const { return states ? nn::TokenOrder::consecutive : nn::TokenOrder::zigzag; }
};
// As the recipe says, or by what divides; `config` is of this rank's part of the blocks. Error when it cannot be.
ContextModes context_modes(const ParallelRecipe& recipe, const models::Config& config);

class TokenShares {
 public:
  // Of `seqs`, which outlives the passes; without a mesh, all of it. With `most`, the largest share of any rank: a plan
  // that has room for it is the same on all ranks.
  void divide(const SeqMap& seqs, Mesh* mesh, const ContextModes& modes, bool most = false);
  // The sequences of this rank's tokens.
  const SeqMap& own(const SeqMap& seqs) const { return context_.ranks ? context_.own : seqs; }
  void put(nn::Run& run, Mesh* mesh) const;

 private:
  nn::ContextShares context_;
  nn::SequenceShares sequence_;
};

}  // namespace braid::train
