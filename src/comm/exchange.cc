// All-to-all, in which every rank has something else for every other, and its relatives: one partner a round
// (pairwise), and Bruck's algorithms, which need log2 P rounds for any P by forwarding blocks (Bruck et al. 1997).
#include <bit>

#include "comm/phases.h"

namespace braid::comm {
namespace {

// Where the blocks to send are: in place they are copied away first, because what arrives overwrites them.
Space sent_from(Schedule& s, const Problem& p) {
  if (!p.in_place) return Space::in;
  copy_to_scratch(s, p);
  return Space::scratch;
}

}  // namespace

Schedule linear_all_to_all(const Problem& p) {
  Schedule s;
  const Space source = sent_from(s, p);
  s.once([=](Round& out) {
    out.copy(p.received.range(Space::out, p.rank), p.blocks.range(source, p.rank));
    for (int t = 1; t < p.size; ++t) {
      const int to = p.all().wrapped(p.rank + t), from = p.all().wrapped(p.rank - t);
      out.send(to, p.blocks.range(source, to));
      out.recv(from, p.received.range(Space::out, from));
    }
  });
  return s;
}

Schedule pairwise_all_to_all(const Problem& p) {
  Schedule s;
  const Space source = sent_from(s, p);
  s.copy(p.received.range(Space::out, p.rank), p.blocks.range(source, p.rank));
  s.then(p.size - 1, [=](int64_t round, Round& out) {
    const int t = static_cast<int>(round) + 1;
    const int to = p.all().wrapped(p.rank + t), from = p.all().wrapped(p.rank - t);
    out.send(to, p.blocks.range(source, to));
    out.recv(from, p.received.range(Space::out, from));
  });
  return s;
}

Schedule pairwise_reduce_scatter(const Problem& p) {
  Schedule s;
  const int64_t mine = p.blocks.count(p.rank);
  const Range sum{Space::scratch, s.reserve(mine), mine};
  const int64_t landing = s.reserve(mine);
  s.copy(sum, p.blocks.range(Space::in, p.rank));
  s.then(p.size - 1, [=](int64_t round, Round& out) {
    const int t = static_cast<int>(round) + 1;
    const int to = p.all().wrapped(p.rank + t), from = p.all().wrapped(p.rank - t);
    out.send(to, p.blocks.range(Space::in, to));
    out.recv_reduce(from, sum, landing);
  });
  s.copy({Space::out, 0, mine}, sum);
  return s;
}

// In round k a rank holds the blocks of the 2^k ranks from itself on. They lie in their places from the start, so that
// none is rotated at the end.
Schedule bruck_all_gather(const Problem& p) {
  Schedule s;
  copy_to_out(s, p);
  s.then(static_cast<int64_t>(std::bit_width(static_cast<unsigned>(p.size - 1))), [=](int64_t round, Round& out) {
    const int held = 1 << round, count = std::min(held, p.size - held);
    const auto from = [&](int first) {
      Ranges ranges;
      for (int k = 0; k < count; ++k) ranges.add(p.blocks.range(Space::out, p.all().wrapped(first + k)));
      return ranges;
    };
    out.send(p.all().wrapped(p.rank - held), from(p.rank));
    out.recv(p.all().wrapped(p.rank + held), from(p.rank + held));
  });
  return s;
}

// Slot d of scratch holds the block that must move on by d ranks. Round k moves those with bit k in d.
Schedule bruck_all_to_all(const Problem& p) {
  Schedule s;
  const int64_t m = p.blocks.count(0);
  const int64_t places = s.reserve(m * p.size), landing = s.reserve(m * p.size);
  const auto place = [=](int d) { return Range{Space::scratch, places + d * m, m}; };
  s.once([=](Round& out) {
    for (int d = 0; d < p.size; ++d) out.copy(place(d), p.blocks.range(Space::in, p.all().wrapped(p.rank + d)));
  });
  s.then(static_cast<int64_t>(std::bit_width(static_cast<unsigned>(p.size - 1))), [=](int64_t round, Round& out) {
    const int step = 1 << round;
    Ranges moved;
    for (int d = step; d < p.size; ++d) {
      if ((d & step) == 0) continue;
      out.copy(place(d), {Space::scratch, landing + moved.count(), m});
      moved.add(place(d));
    }
    out.send(p.all().wrapped(p.rank + step), moved);
    out.recv(p.all().wrapped(p.rank - step), Range{Space::scratch, landing, moved.count()});
  });
  s.once([=](Round& out) {
    for (int d = 0; d < p.size; ++d) out.copy(p.received.range(Space::out, p.all().wrapped(p.rank - d)), place(d));
  });
  return s;
}

}  // namespace braid::comm
