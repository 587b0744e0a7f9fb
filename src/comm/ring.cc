// Rings: each rank sends to the next and receives from the previous one. The least bytes, the most rounds.
#include "comm/phases.h"

namespace braid::comm {

void ring_reduce_scatter(Schedule& s, const Team& team, const Parts& parts, Space data) {
  if (team.size == 1) return;
  const int64_t landing = s.reserve(parts.largest(team.size));
  s.then(team.size - 1, [=](int64_t round, Round& out) {
    const int t = static_cast<int>(round);
    out.send(team.rank(team.wrapped(team.me + 1)), parts.of(data, team.wrapped(team.me - t - 1)));
    out.recv_reduce(team.rank(team.wrapped(team.me - 1)), parts.of(data, team.wrapped(team.me - t - 2)), landing);
  });
}

void ring_all_gather(Schedule& s, const Team& team, const Parts& parts, Space data) {
  s.then(team.size - 1, [=](int64_t round, Round& out) {
    const int t = static_cast<int>(round);
    out.send(team.rank(team.wrapped(team.me + 1)), parts.of(data, team.wrapped(team.me - t)));
    out.recv(team.rank(team.wrapped(team.me - 1)), parts.of(data, team.wrapped(team.me - t - 1)));
  });
}

Schedule ring_all_reduce(const Problem& p) {
  Schedule s;
  const Parts parts{.blocks = Blocks::divided(p.blocks.total(), p.size)};
  copy_to_out(s, p);
  ring_reduce_scatter(s, p.all(), parts, Space::out);
  ring_all_gather(s, p.all(), parts, Space::out);
  return s;
}

Schedule ring_all_gather(const Problem& p) {
  Schedule s;
  copy_to_out(s, p);
  ring_all_gather(s, p.all(), {.blocks = p.blocks}, Space::out);
  return s;
}

// Sums travel in two blocks of scratch, so that the input is neither copied nor changed.
Schedule ring_reduce_scatter(const Problem& p) {
  Schedule s;
  const Blocks blocks = p.blocks;
  const int64_t largest = Parts{.blocks = blocks}.largest(p.size);
  s.reserve(2 * largest);
  const Team team = p.all();
  s.then(p.size - 1, [=](int64_t round, Round& out) {
    const int t = static_cast<int>(round);
    const int sent = team.wrapped(team.me - t - 1), received = team.wrapped(team.me - t - 2);
    const Range carried{Space::scratch, (round + 1) % 2 * largest, blocks.count(sent)};
    const Range landing{Space::scratch, round % 2 * largest, blocks.count(received)};
    out.send(team.wrapped(team.me + 1), t == 0 ? blocks.range(Space::in, sent) : carried);
    out.recv(team.wrapped(team.me - 1), landing);
    out.reduce(landing, blocks.range(Space::in, received));
  });
  const Range last{Space::scratch, p.size % 2 * largest, blocks.count(p.rank)};  // of round size - 2
  if (p.size > 1)
    s.copy({Space::out, 0, last.count}, last);
  else
    s.copy({Space::out, 0, last.count}, blocks.range(Space::in, 0));
  return s;
}

}  // namespace braid::comm
