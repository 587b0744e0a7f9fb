// Recursive doubling and halving: log2 P rounds between ranks whose numbers differ in one bit. Where P is not a power
// of two the ranks beyond one lend their data to a partner (Thakur, Rabenseifner and Gropp 2005).
#include "comm/phases.h"

namespace braid::comm {

void fold_in(Schedule& s, const Team& team, const Ranges& all) {
  const Fold fold(team);
  if (fold.extra == 0) return;
  const int64_t landing = s.reserve(fold.lends() ? 0 : all.count());
  s.once([=](Round& out) {
    if (!fold.paired()) return;
    const int partner = team.rank(fold.partner());
    if (fold.lends())
      out.send(partner, all);
    else
      out.recv_reduce(partner, all, landing);
  });
}

void fold_out(Schedule& s, const Team& team, const Ranges& all) {
  const Fold fold(team);
  if (fold.extra == 0) return;
  s.once([=](Round& out) {
    if (!fold.paired()) return;
    const int partner = team.rank(fold.partner());
    if (fold.lends())
      out.recv(partner, all);
    else
      out.send(partner, all);
  });
}

void lend_parts(Schedule& s, const Team& team, const Parts& parts, Space data) {
  const Fold fold(team);
  if (fold.extra == 0) return;
  s.once([=](Round& out) {
    if (fold.lends())
      out.send(team.rank(fold.partner()), parts.of(data, fold.me));
    else if (fold.paired())
      out.recv(team.rank(fold.partner()), parts.of(data, fold.partner()));
  });
}

void return_parts(Schedule& s, const Team& team, const Parts& parts, Space data) {
  const Fold fold(team);
  if (fold.extra == 0) return;
  s.once([=](Round& out) {
    if (fold.lends())
      out.recv(team.rank(fold.partner()), parts.of(data, fold.me));
    else if (fold.paired())
      out.send(team.rank(fold.partner()), parts.of(data, fold.partner()));
  });
}

void halving_reduce_scatter(Schedule& s, const Team& team, const Parts& parts, Space data) {
  const Fold fold(team);
  if (fold.core == 1 || fold.lends()) return;
  const auto of = [=](int begin, int end) { return parts.of(data, fold.begin(begin), fold.begin(end)); };
  const int middle = fold.core / 2;
  const int64_t landing = s.reserve(fold.v() < middle ? of(0, middle).count() : of(middle, fold.core).count());
  s.then(fold.rounds(), [=](int64_t round, Round& out) {
    const int half = fold.core >> (round + 1), v = fold.v(), other = v ^ half;
    const int kept = v / half * half, given = other / half * half;
    const int partner = team.rank(fold.member(other));
    out.send(partner, of(given, given + half));
    out.recv_reduce(partner, of(kept, kept + half), landing);
  });
}

void doubling_all_gather(Schedule& s, const Team& team, const Parts& parts, Space data) {
  const Fold fold(team);
  if (fold.lends()) return;
  s.then(fold.rounds(), [=](int64_t round, Round& out) {
    const int held = 1 << round, v = fold.v(), other = v ^ held;
    const int mine = v / held * held, theirs = other / held * held;
    const auto of = [&](int begin) { return parts.of(data, fold.begin(begin), fold.begin(begin + held)); };
    const int partner = team.rank(fold.member(other));
    out.send(partner, of(mine));
    out.recv(partner, of(theirs));
  });
}

// From the far partner to the near one, as in the halving: both add up in the same order, so that short and long
// vectors have the same bits (comm/algorithm.h).
void doubling_all_reduce(Schedule& s, const Team& team, const Range& range) {
  const Fold fold(team);
  if (fold.core == 1 || fold.lends()) return;
  const int64_t landing = s.reserve(range.count);
  s.then(fold.rounds(), [=](int64_t round, Round& out) {
    const int partner = team.rank(fold.member(fold.v() ^ (fold.core >> (round + 1))));
    out.send(partner, range);
    out.recv_reduce(partner, range, landing);
  });
}

// Dissemination: in round k to the rank 2^k further on, which works for any number of ranks (Hensgen et al. 1988).
Schedule recursive_barrier(const Problem& p) {
  Schedule s;
  s.then(static_cast<int64_t>(std::bit_width(static_cast<unsigned>(p.size - 1))), [=](int64_t round, Round& out) {
    out.signal(p.all().wrapped(p.rank + (1 << round)));
    out.await(p.all().wrapped(p.rank - (1 << round)));
  });
  return s;
}

Schedule recursive_all_reduce(const Problem& p) {
  Schedule s;
  const Range all{Space::out, 0, p.blocks.total()};
  copy_to_out(s, p);
  fold_in(s, p.all(), all);
  doubling_all_reduce(s, p.all(), all);
  fold_out(s, p.all(), all);
  return s;
}

Schedule rabenseifner_all_reduce(const Problem& p) {
  Schedule s;
  const Range all{Space::out, 0, p.blocks.total()};
  const Parts parts{.blocks = Blocks::divided(p.blocks.total(), p.size)};
  copy_to_out(s, p);
  fold_in(s, p.all(), all);
  halving_reduce_scatter(s, p.all(), parts, Space::out);
  doubling_all_gather(s, p.all(), parts, Space::out);
  fold_out(s, p.all(), all);
  return s;
}

Schedule recursive_all_gather(const Problem& p) {
  Schedule s;
  const Parts parts{.blocks = p.blocks};
  copy_to_out(s, p);
  lend_parts(s, p.all(), parts, Space::out);
  doubling_all_gather(s, p.all(), parts, Space::out);
  fold_out(s, p.all(), Range{Space::out, 0, p.blocks.total()});
  return s;
}

Schedule recursive_reduce_scatter(const Problem& p) {
  Schedule s;
  const Parts parts{.blocks = p.blocks};
  copy_to_scratch(s, p);
  fold_in(s, p.all(), Range{Space::scratch, 0, p.blocks.total()});
  halving_reduce_scatter(s, p.all(), parts, Space::scratch);
  return_parts(s, p.all(), parts, Space::scratch);
  copy_block_to_out(s, p);
  return s;
}

}  // namespace braid::comm
