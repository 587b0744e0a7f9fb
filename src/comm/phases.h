// Parts of schedules that several algorithms are put together from. Each appends rounds in which a team works on
// `data`, a space that all its members hold whole; members agree on the arguments except for Team::me. Vectors start at
// element 0 of their space.
#pragma once
#include <algorithm>
#include <bit>

#include "comm/algorithm.h"

namespace braid::comm {

// out = in, and what follows works in place.
void copy_to_out(Schedule& s, const Problem& p);
// A copy of `in` at the start of scratch, to reduce in.
void copy_to_scratch(Schedule& s, const Problem& p);
// This rank's block, wherever it was reduced, as the result of a reduce-scatter.
void copy_block_to_out(Schedule& s, const Problem& p);

// After it member i has the sum of everybody's part i; the other parts are unspecified. Bytes are the least possible:
// each member sends every part but one.
void ring_reduce_scatter(Schedule& s, const Team& team, const Parts& parts, Space data);
// Before it member i has part i, after it all.
void ring_all_gather(Schedule& s, const Team& team, const Parts& parts, Space data);

// A team of any size as a core of 2^k members. The first 2 * extra members are pairs of which the second lends its data
// to the first; what core member v stands for is therefore consecutive: members [begin(v), begin(v + 1)).
struct Fold {
  int core = 1, extra = 0, me = 0;

  explicit Fold(const Team& team)
      : core(static_cast<int>(std::bit_floor(static_cast<unsigned>(team.size)))),
        extra(team.size - core),
        me(team.me) {}
  bool paired() const { return me < 2 * extra; }
  bool lends() const { return paired() && me % 2 == 1; }
  int partner() const { return me ^ 1; }
  int v() const { return paired() ? me / 2 : me - extra; }
  int begin(int v) const { return v + std::min(v, extra); }
  int member(int v) const { return begin(v); }
  int rounds() const { return std::countr_zero(static_cast<unsigned>(core)); }
};

// Lenders' data are added to their partners'; afterwards the core alone has work to do.
void fold_in(Schedule& s, const Team& team, const Ranges& all);
// Lenders' own parts, for gathering, and back again after a reduce-scatter.
void lend_parts(Schedule& s, const Team& team, const Parts& parts, Space data);
void return_parts(Schedule& s, const Team& team, const Parts& parts, Space data);
// Recursive halving within the core: core member v gets the sums of the parts it stands for.
void halving_reduce_scatter(Schedule& s, const Team& team, const Parts& parts, Space data);
// Recursive doubling within the core, from the parts that each stands for to all.
void doubling_all_gather(Schedule& s, const Team& team, const Parts& parts, Space data);
// Recursive doubling of the whole range within the core.
void doubling_all_reduce(Schedule& s, const Team& team, const Range& range);
// Partners send lenders the whole.
void fold_out(Schedule& s, const Team& team, const Ranges& all);

// A binomial tree over the whole team, from and to member `root`. The reduction destroys the data of others.
void binomial_broadcast_phase(Schedule& s, const Team& team, int root, const Range& range);
void binomial_reduce_phase(Schedule& s, const Team& team, int root, const Range& range);

}  // namespace braid::comm
