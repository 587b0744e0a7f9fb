// Groups of answers (groups.h) that ranks with the same weights make between them: each a run of consecutive ones,
// after which all ranks have all. What ends the work of one rank, a signal or an error, ends it on every rank.
#pragma once
#include <cstdint>
#include <vector>

#include "comm/group.h"
#include "core/param.h"
#include "sys/function_ref.h"
#include "train/groups.h"

namespace braid::train {

class GroupExchange {
 public:
  // `ranks`, which outlives this, or null: there is one. Ids of tokens are below `vocabulary`.
  GroupExchange(comm::Group* ranks, int64_t vocabulary) : ranks_(ranks), vocabulary_(vocabulary) {}

  int rank() const { return ranks_ ? ranks_->rank() : 0; }
  bool first() const { return rank() == 0; }
  // Of so many groups: this rank's.
  Range share(int64_t groups) const {
    return ranks_ ? share_of(groups, ranks_->rank(), ranks_->size()) : Range{0, groups};
  }
  // `work` gives the groups of this rank's share, this those of all ranks, in the order of their shares. All ranks call
  // it. Where `work` throws on some of them: Interrupted if a signal did it, otherwise a CommonError with the message
  // of the first of these ranks (agreement.h).
  std::vector<Group> all(sys::FunctionRef<std::vector<Group>()> work);

 private:
  comm::Group* ranks_;
  int64_t vocabulary_;
};

}  // namespace braid::train
