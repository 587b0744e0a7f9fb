// The tokens of a part of a batch that a rank computes, of which parallel.sp gives every rank of a model a share.
#pragma once
#include "nn/run.h"
#include "train/mesh.h"

namespace braid::train {

class TokenShares {
 public:
  // Of `seqs`; without a mesh, all of it. With `most`, the largest share of any rank: a plan that has room for it is
  // the same on all ranks.
  void divide(const SeqMap& seqs, Mesh* mesh, bool most = false);
  // Outlives the passes of `run`.
  void put(nn::Run& run, Mesh* mesh) const;

 private:
  nn::SequenceShares sequence_;
};

}  // namespace braid::train
