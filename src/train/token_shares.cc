#include "train/token_shares.h"

#include "nn/sequence_parallel.h"

namespace braid::train {

void TokenShares::divide(const SeqMap& seqs, Mesh* mesh, bool most) {
  if (!mesh || !mesh->cut().sequence) return;
  const Cut cut = mesh->cut();
  nn::share_rows(seqs, most ? 0 : static_cast<int>(cut.rank), static_cast<int>(cut.ranks), sequence_);
}

void TokenShares::put(nn::Run& run, Mesh* mesh) const {
  if (!mesh) return;
  run.tensor = mesh->tensor();
  if (mesh->cut().sequence) run.sequence = &sequence_;
}

}  // namespace braid::train
