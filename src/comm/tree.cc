// Binomial trees: log2 P rounds, the whole vector in each.
#include <bit>

#include "comm/phases.h"

namespace braid::comm {
namespace {

int tree_rounds(int size) { return static_cast<int>(std::bit_width(static_cast<unsigned>(size - 1))); }

}  // namespace

void binomial_broadcast_phase(Schedule& s, const Team& team, int root, const Range& range) {
  s.then(tree_rounds(team.size), [=](int64_t round, Round& out) {
    const int reached = 1 << round, me = team.wrapped(team.me - root);
    const auto rank = [&](int place) { return team.rank(team.wrapped(place + root)); };
    if (me < reached && me + reached < team.size) out.send(rank(me + reached), range);
    if (me >= reached && me < 2 * reached) out.recv(rank(me - reached), range);
  });
}

void binomial_reduce_phase(Schedule& s, const Team& team, int root, const Range& range) {
  const int64_t landing = s.reserve(team.size > 1 ? range.count : 0);
  s.then(tree_rounds(team.size), [=](int64_t round, Round& out) {
    const int step = 1 << round, me = team.wrapped(team.me - root);
    const auto rank = [&](int place) { return team.rank(team.wrapped(place + root)); };
    if (me % (2 * step) == step) out.send(rank(me - step), range);
    if (me % (2 * step) == 0 && me + step < team.size) out.recv_reduce(rank(me + step), range, landing);
  });
}

Schedule binomial_barrier(const Problem& p) {
  Schedule s;
  const int rounds = tree_rounds(p.size);
  s.then(2 * rounds, [=](int64_t round, Round& out) {
    const bool arriving = round < rounds;
    const int step = 1 << (arriving ? round : 2 * rounds - 1 - round);
    const bool below = p.rank % (2 * step) == step, above = p.rank % (2 * step) == 0 && p.rank + step < p.size;
    if (!below && !above) return;
    const int peer = below ? p.rank - step : p.rank + step;
    if (below == arriving)
      out.signal(peer);
    else
      out.await(peer);
  });
  return s;
}

Schedule binomial_broadcast(const Problem& p) {
  Schedule s;
  binomial_broadcast_phase(s, p.all(), p.root, {Space::out, 0, p.blocks.total()});
  return s;
}

// Only the root's `out` is the caller's to give; the others add in scratch.
Schedule binomial_reduce(const Problem& p) {
  Schedule s;
  const bool root = p.rank == p.root;
  if (root)
    copy_to_out(s, p);
  else
    copy_to_scratch(s, p);
  binomial_reduce_phase(s, p.all(), p.root, {root ? Space::out : Space::scratch, 0, p.blocks.total()});
  return s;
}

Schedule binomial_all_reduce(const Problem& p) {
  Schedule s;
  const Range all{Space::out, 0, p.blocks.total()};
  copy_to_out(s, p);
  binomial_reduce_phase(s, p.all(), 0, all);
  binomial_broadcast_phase(s, p.all(), 0, all);
  return s;
}

}  // namespace braid::comm
